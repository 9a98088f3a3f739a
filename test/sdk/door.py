"""Posts callbacks that wechatpy encrypted to the running door, and forgeries.

Usage: door.py TIDEGATE (the built program). Runs `tidegate dev` without load and
is WeChat to it. What is authentic must be acknowledged and end in a row of the
right user; what is forged must be refused with nothing put into the queue.
Prints one line and exits with 0, or says what differs and exits with 1.
"""
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from urllib.parse import urlencode

import wechatpy
from wechatpy.crypto import WeChatCrypto
from wechatpy.utils import WeChatSigner

checks = 0


def same(what, got, want):
    global checks
    checks += 1
    if got != want:
        sys.exit(f"mismatch: {what}: got {got!r}, want {want!r}")


class Gate:
    """A `tidegate dev` in a directory of its own."""

    def __init__(self, program, directory):
        self.process = subprocess.Popen([program, "dev", "--rate", "0", "--port", "0", "--data", directory],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        text = ""
        for line in self.process.stdout:
            text += line
            if "/sim/v1/say" in line and "curl" in line:
                break
        else:
            sys.exit("tidegate dev ended at its start:\n" + text)
        self.door = re.search(r"callbacks\s+(http://\S+)", text).group(1)
        self.api = re.search(r"API\s+(http://[^/]+)", text).group(1)
        self.ops = re.search(r"operations\s+(http://[^/]+)", text).group(1)
        self.key = re.search(r"Bearer (\S+?)'", text).group(1)
        with open(directory + "/account.json", encoding="utf-8") as f:
            self.account = json.load(f)

    def get(self, url, **headers):
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10) as r:
            return r.read().decode()

    def published(self):
        """Records that the queue has acknowledged to this process."""
        return sum(float(v) for v in re.findall(r"^tidegate_kafka_publish_seconds_count\{[^}]*\} (\S+)", self.get(self.ops + "/metrics"), re.M))

    def rows(self, openid):
        return json.loads(self.get(f"{self.api}/v1/messages?kind=callback&openid={openid}", Authorization="Bearer " + self.key))["messages"]

    def post(self, query, body, **headers):
        request = urllib.request.Request(self.door + "?" + urlencode(query), data=body.encode("utf-8", "surrogatepass"), headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()


def document(account, openid, content, number):
    return (f"<xml><ToUserName><![CDATA[{account['GhID']}]]></ToUserName><FromUserName><![CDATA[{openid}]]></FromUserName>"
            f"<CreateTime>{int(time.time())}</CreateTime><MsgType><![CDATA[text]]></MsgType>"
            f"<Content><![CDATA[{content}]]></Content><MsgId>{number}</MsgId></xml>")


def sealed(account, plain, openid, app_id=None, token=None, nonce="9001"):
    """A request as the SDK makes it: query and body."""
    token = token or account["Token"]
    stamp = str(int(time.time()))
    crypto = WeChatCrypto(token, account["EncodingAESKey"], app_id or account["AppID"])
    body = crypto.encrypt_message(plain, nonce, stamp)
    text = re.search(r"<Encrypt><!\[CDATA\[(.*?)\]\]></Encrypt>", body, re.S).group(1)
    query = {"timestamp": stamp, "nonce": nonce, "encrypt_type": "aes", "openid": openid,
             "signature": sign(token, stamp, nonce), "msg_signature": sign(token, stamp, nonce, text)}
    return query, body


def sign(*parts):
    signer = WeChatSigner()
    signer.add_data(*parts)
    return signer.signature


def check_authentic(gate):
    openid = "oSdkUser1"
    for i, content in enumerate(["你好 & <b>hello</b> 😀", "bell \x07 inside",
                                 "]]></Content><FromUserName><![CDATA[oVictim]]></FromUserName><Content><![CDATA["]):
        same(f"answer to {content!r}", gate.post(*sealed(gate.account, document(gate.account, openid, content, 7000 + i), openid, nonce=str(i))), (200, "success"))
    deadline = time.time() + 20
    while len(gate.rows(openid)) < 3 and time.time() < deadline:
        time.sleep(0.1)
    same("rows of the sender", len(gate.rows(openid)), 3)
    same("rows of the user that the text named", len(gate.rows("oVictim")), 0)


def check_forged(gate):
    account, openid = gate.account, "oSdkUser2"
    plain = document(account, openid, "forged", 8000)
    query, body = sealed(account, plain, openid)
    forged = {
        "another appid": (*sealed(account, plain, openid, app_id="wx0000000000000001"), 403),
        "another token": (*sealed(account, plain, openid, token="not-our-token"), 403),
        "a wrong signature": ({**query, "msg_signature": "0" * 40}, body, 403),
        "plain text in safe mode": (query, plain, 403),
        "a DOCTYPE without a signature": ({"timestamp": "1", "nonce": "2", "signature": "0" * 40},
                                          "<!DOCTYPE x SYSTEM 'file:///etc/passwd'>" + plain, 403),
        "one megabyte": (query, "<xml>" + "x" * (1 << 20), 413),
    }
    time.sleep(2)  # what the authentic ones set off has come to rest
    before = gate.published()
    for what, (q, b, status) in forged.items():
        got, text = gate.post(q, b)
        same("status of " + what, got, status)
        same("no ack for " + what, "success" in text, False)
    same("records put into the queue by forgeries", gate.published() - before, 0)
    same("rows of the forged sender", len(gate.rows(openid)), 0)


def main(program):
    with tempfile.TemporaryDirectory() as directory:
        gate = Gate(program, directory)
        try:
            check_authentic(gate)
            check_forged(gate)
        finally:
            gate.process.terminate()
            gate.process.wait(30)
    print(f"CI: the running door and wechatpy {wechatpy.__version__}: {checks} checks passed")


main(sys.argv[1])
