"""Drives the WeChat simulator and pkg/wechat with wechatpy.

Usage: check.py SIMSERVER GATE (two built programs). Prints one line and exits
with 0, or says on standard error what differs and exits with 1.
"""
import json
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from urllib.parse import parse_qs, urlencode, urlsplit

import wechatpy
from wechatpy import WeChatClient, create_reply, parse_message
from wechatpy.crypto import WeChatCrypto
from wechatpy.exceptions import (InvalidAppIdException, InvalidSignatureException,
                                 WeChatClientException)
from wechatpy.utils import WeChatSigner, check_signature

checks = 0


def same(what, got, want):
    """One check: stops the run with both values when they differ."""
    global checks
    checks += 1
    if got != want:
        sys.exit(f"mismatch: {what}: got {got!r}, want {want!r}")


def refused(what, code, call, *args, **kwargs):
    """The call must be refused with the errcode."""
    try:
        call(*args, **kwargs)
    except WeChatClientException as e:
        return same(what, e.errcode, code)
    sys.exit(f"mismatch: {what}: accepted, want errcode {code}")


class Client(WeChatClient):
    """The SDK's client, pointed at the simulator instead of WeChat."""

    def fetch_access_token(self):
        return self._fetch_access_token(
            url=self.API_BASE_URL + "token",
            params={"grant_type": "client_credential", "appid": self.appid, "secret": self.secret})


class Bot(BaseHTTPRequestHandler):
    """A server as the SDK's documentation shows it."""

    accounts, got = {}, Queue()

    def log_message(self, *_):
        pass

    def answer(self, body):
        raw = body.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def query(self):
        url = urlsplit(self.path)
        return url.path.strip("/"), {k: v[0] for k, v in parse_qs(url.query).items()}

    def do_GET(self):
        mode, q = self.query()
        check_signature(self.accounts[mode]["Token"], q["signature"], q["timestamp"], q["nonce"])
        self.answer(q["echostr"])

    def do_POST(self):
        mode, q = self.query()
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        try:
            message, reply = self.handle_message(mode, q, body)
        except Exception as e:  # shown by the main thread
            message, reply = e, "error"
        self.got.put((mode, q, message))
        self.answer(reply)

    def handle_message(self, mode, q, body):
        account = self.accounts[mode]
        check_signature(account["Token"], q["signature"], q["timestamp"], q["nonce"])
        crypto = WeChatCrypto(account["Token"], account["EncodingAESKey"], account["AppID"])
        if mode != "plain":
            body = crypto.decrypt_message(body, q["msg_signature"], q["timestamp"], q["nonce"])
        message = parse_message(body)
        if message.type != "text" or not message.content.startswith("ask"):
            return message, "success"
        reply = create_reply("answer to " + message.content, message).render()
        return message, reply if mode == "plain" else crypto.encrypt_message(reply, q["nonce"], q["timestamp"])


class Simulator:
    """The simulator process and its control surface."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        hello = json.loads(self.process.stdout.readline())
        self.url, self.accounts = hello["url"], hello["accounts"]

    def control(self, path, **body):
        data = json.dumps(body).encode() if body else None
        with urllib.request.urlopen(f"{self.url}/sim/v1/{path}", data, timeout=30) as r:
            return json.load(r)

    def close(self):
        self.process.stdin.close()
        same("simulator's exit code", self.process.wait(timeout=10), 0)


class Gate:
    """pkg/wechat behind a pipe."""

    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, account, mode, query, body="", reply=""):
        self.process.stdin.write(json.dumps({
            "app_id": account["AppID"], "token": account["Token"], "encoding_aes_key": account["EncodingAESKey"],
            "mode": mode, "query": urlencode(query), "body": body, "reply": reply}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self):
        self.process.stdin.close()
        same("gate's exit code", self.process.wait(timeout=10), 0)


def received(mode):
    """The next callback of the account in this mode."""
    got_mode, query, message = Bot.got.get(timeout=10)
    if isinstance(message, Exception):
        sys.exit(f"mismatch: callback in {got_mode} mode: the SDK cannot open it: {message!r}")
    same("mode of the callback", got_mode, mode)
    return query, message


def check_callbacks(sim, mode, account):
    """The SDK checks, opens and answers what the simulator pushes."""
    say = dict(account=account["AppID"])
    sim.control("callback", url=f"{Bot.address}/{mode}", check=True, **say)
    user = sim.control(f"followers?account={account['AppID']}&limit=1")["openids"][0]
    for text in ["你好，几点下班？", "a < b & c > d", "😀"] + ["x" * n for n in range(1, 34)]:
        done = sim.control("say", openid=user, text=text, **say)
        query, m = received(mode)
        same("acked", (done["acked"], done["judged"]), (True, "success"))
        same("text", (m.type, m.content, m.source, m.target), ("text", text, user, account["GhID"]))
        same("openid of the query", query["openid"], user)
    done = sim.control("say", openid=user, text="ask", **say)
    received(mode)
    same("the SDK's passive reply", (done["judged"], done.get("text")), ("passive", "answer to ask"))
    for path, body, event, key in [
            ("menu", {"key": "BALANCE"}, "click", "BALANCE"), ("menu", {"url": "https://example.com/"}, "view", "https://example.com/"),
            ("scan", {"scene": "shop"}, "scan", "shop"), ("subscribe", {"scene": "shop"}, "subscribe_scan", "shop")]:
        sim.control(path, **(say if path == "subscribe" else dict(say, openid=user)), **body)
        _, m = received(mode)
        name = getattr(m, "scene_id", None) or getattr(m, "key", None) or getattr(m, "url", None)
        same(f"{path} event", (m.type, m.event, name), ("event", event, key))
    for kind in ["image", "voice", "video", "shortvideo", "location", "link"]:
        sim.control("say", openid=user, type=kind, **say)
        _, m = received(mode)
        same("message type", m.type, kind)
    return user


def check_tokens(sim, account):
    Client.API_BASE_URL = sim.url + "/cgi-bin/"
    client = Client(account["AppID"], account["Secret"])
    same("life of a token", client.fetch_access_token()["expires_in"], 7200)
    refused("wrong secret", 40125, Client(account["AppID"], "x").fetch_access_token)
    refused("wrong appid", 40013, Client("wxnobody", "x").fetch_access_token)
    refused("unknown token", 40014, Client(account["AppID"], account["Secret"], access_token="nonsense", auto_retry=False).misc.get_wechat_ips)
    healed = Client(account["AppID"], account["Secret"], access_token="nonsense")
    same("the SDK's own renewal of a bad token", isinstance(healed.misc.get_wechat_ips(), list), True)
    return client


def check_custom(sim, client, account, user):
    m, ok = client.message, 0
    send = [
        (m.send_text, ["你好 <a href=\"https://example.com/?a=1&b=2\">x</a>"]),
        (m.send_image, ["MEDIA"]), (m.send_voice, ["MEDIA"]), (m.send_video, ["MEDIA", "t", "d"]),
        (m.send_music, ["https://example.com/a.mp3", "https://example.com/b.mp3", "THUMB", "t", "d"]),
        (m.send_articles, [[{"title": "t", "description": "d", "url": "https://example.com/", "image": "https://example.com/p.jpg"}]]),
        (m.send_articles, ["MEDIA"]), (m.send_card, ["CARD"]),
        (m.send_msg_menu, [{"head_content": "?", "list": [{"id": "1", "content": "yes"}], "tail_content": "!"}]),
        (m.send_mini_program_page, [{"title": "t", "appid": "wx", "pagepath": "p", "thumb_media_id": "T"}]),
    ]
    for call, args in send:
        sim.control("say", account=account["AppID"], openid=user, text="open the window")
        received("safe")
        same(call.__name__, call(user, *args)["errcode"], 0)
        ok += 1
    same("applied replies", sum(e["applied"] for e in arrivals(sim, "/cgi-bin/message/custom/send") if e.get("applied")), ok)
    for _ in range(4):
        m.send_text(user, "one of five")
    refused("the sixth message of a window", 45047, m.send_text, user, "six")
    refused("no such user", 40003, m.send_text, "oNobody", "x")
    refused("empty text", 44004, m.send_text, user, "")
    refused("two articles", 45008, m.send_articles, user, [{"title": "t", "description": "d", "url": "u", "image": "p"}] * 2)
    sim.control("clock", advance="48h")
    refused("after 48 hours", 45015, m.send_text, user, "late")


def arrivals(sim, path):
    with urllib.request.urlopen(f"{sim.url}/sim/v1/journal?kind=arrival&what={path}", timeout=30) as r:
        return [json.loads(line) for line in r]


def check_templates(sim, client, account, user):
    data = {"thing1": {"value": "订单已发货"}, "amount2": {"value": "¥39.80"}}
    sent = client.message.send_template(user, "TEMPLATE", data, url="https://example.com/?a=1&b=2")
    same("errcode of template/send", sent["errcode"], 0)
    same("msgid is beyond what a double holds", sent["msgid"] > 2 ** 53, True)
    _, m = received("safe")
    same("receipt", (m.event, int(m._data["MsgID"]), m.status), ("templatesendjobfinish", sent["msgid"], "success"))
    refused("unknown template", 40037, client.message.send_template, user, "NONE", data)
    refused("missing field", 47003, client.message.send_template, user, "TEMPLATE", {"thing1": {"value": "x"}})
    same("errcode of bizsend", client.message.send_subscribe_message(user, "SUBSCRIPTION", {"thing1": {"value": "x"}})["errcode"], 0)
    _, m = received("safe")
    same("subscription receipt", m._data["SubscribeMsgSentEvent"]["List"]["ErrorStatus"], "success")
    listed = client.template.get_all_private_template()["template_list"]
    same("template list", [t["template_id"] for t in listed], ["TEMPLATE"])
    everybody = sim.control(f"followers?account={account['AppID']}")["openids"]
    same("followers over several pages", list(client.user.iter_followers()), everybody)
    same("user info", client.user.get(user)["subscribe"], 1)


def check_gate(gate, account):
    """pkg/wechat opens what the SDK encrypts, and the SDK what pkg/wechat seals."""
    crypto = WeChatCrypto(account["Token"], account["EncodingAESKey"], account["AppID"])
    user, timestamp, nonce = "oZx81wQk2Lr7nVb0TtYpSdUeGhA4", "1893456001", "778899001"
    signer = WeChatSigner()
    signer.add_data(account["Token"], timestamp, nonce)
    query = {"signature": signer.signature, "timestamp": timestamp, "nonce": nonce}
    same("check of the address", gate.ask(account, "safe", dict(query, echostr="4375120948345356249")),
         {"accepted": True, "echo": "4375120948345356249"})
    for n in range(40):  # every length of the padding
        plain = (f"<xml><ToUserName><![CDATA[{account['GhID']}]]></ToUserName><FromUserName><![CDATA[{user}]]></FromUserName>"
                 f"<CreateTime>{timestamp}</CreateTime><MsgType><![CDATA[text]]></MsgType>"
                 f"<Content><![CDATA[{'字' + 'x' * n}]]></Content><MsgId>23847650019283746</MsgId></xml>")
        body = crypto.encrypt_message(plain, nonce, timestamp)
        signature = body.split("<MsgSignature><![CDATA[")[1][:40]
        full = dict(query, openid=user, encrypt_type="aes", msg_signature=signature)
        a = gate.ask(account, "safe", full, body, reply=plain)
        same("callback of the SDK", (a["accepted"], a.get("plain")), (True, plain))
        same("sealed reply", crypto.decrypt_message(a["sealed"], a["sealed"].split("<MsgSignature><![CDATA[")[1][:40], "1893456002", "190283746"), plain)
    spoiled = body.replace("<Encrypt><![CDATA[", "<Encrypt><![CDATA[A", 1)
    foreign = WeChatCrypto(account["Token"], account["EncodingAESKey"], "wxsomebodyelse").encrypt_message(plain, nonce, timestamp)
    for what, q, b, reason in [
            ("changed cipher text", full, spoiled, "signature"),
            ("wrong signature", dict(full, msg_signature="0" * 40), body, "signature"),
            ("another account's appid", dict(full, msg_signature=foreign.split("<MsgSignature><![CDATA[")[1][:40]), foreign, "ciphertext"),
            ("plain text in safe mode", query, plain, "mode")]:
        same(what, gate.ask(account, "safe", q, b), {"accepted": False, "reason": reason})
    for wrong, error in [("wxsomebodyelse", InvalidAppIdException), (account["AppID"], InvalidSignatureException)]:
        other = WeChatCrypto(account["Token"] + ("x" if wrong == account["AppID"] else ""), account["EncodingAESKey"], wrong)
        try:
            other.decrypt_message(body, signature, timestamp, nonce)
            sys.exit("mismatch: the SDK opened a callback of somebody else")
        except error:
            same("the SDK refuses it as well", True, True)


def main(simserver, gate_program):
    gate = Gate(gate_program)
    sim = Simulator(simserver)
    bot = ThreadingHTTPServer(("127.0.0.1", 0), Bot)
    Bot.accounts, Bot.address = sim.accounts, "http://127.0.0.1:%d" % bot.server_port
    threading.Thread(target=bot.serve_forever, daemon=True).start()
    check_gate(gate, sim.accounts["safe"])
    users = {mode: check_callbacks(sim, mode, account) for mode, account in sim.accounts.items()}
    safe = sim.accounts["safe"]
    client = check_tokens(sim, safe)
    check_templates(sim, client, safe, users["safe"])
    check_custom(sim, client, safe, users["safe"])
    verdict = sim.control("verdict")
    same("callbacks that were refused", verdict["callbacks"]["refused"], 0)
    replies = verdict["replies"]
    same("lost, doubled, out of order", (verdict["complete"], replies["lost"], replies["doubled"], replies["out_of_order"]), (True, 0, 0, 0))
    same("the one reply to nobody is found", (replies["unexpected"], replies["invented"]), (1, 1))
    gate.close()
    sim.close()
    bot.shutdown()
    print(f"wechatpy {wechatpy.__version__}: {checks} checks passed against the simulator and pkg/wechat")


if __name__ == "__main__":
    main(*sys.argv[1:])
