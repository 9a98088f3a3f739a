"""A bot as many accounts have one today: written with wechatpy, it knows nothing of Tidegate.

Usage: bot.py TOKEN ENCODING_AES_KEY APP_ID. Prints its port, then one line of JSON for
each callback that it answered. It checks and decrypts what it is sent, answers a text
with "bot " in front, encrypted, and tells WeChat's repeats by their MsgId, as WeChat's
documentation asks for.
"""
import json
import sys
import threading
from socketserver import ThreadingMixIn
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from wechatpy import create_reply, parse_message
from wechatpy.crypto import WeChatCrypto
from wechatpy.exceptions import InvalidAppIdException, InvalidSignatureException
from wechatpy.utils import check_signature


class Bot:
    def __init__(self, token, key, app_id):
        self.token, self.crypto = token, WeChatCrypto(token, key, app_id)
        self.lock, self.answers = threading.Lock(), {}

    def __call__(self, environ, start_response):
        query = {k: v[0] for k, v in parse_qs(environ["QUERY_STRING"]).items()}
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        try:
            check_signature(self.token, query["signature"], query["timestamp"], query["nonce"])
            text = self.crypto.decrypt_message(body, query["msg_signature"], query["timestamp"], query["nonce"])
            answer = self.answer(query, parse_message(text))
        except (InvalidSignatureException, InvalidAppIdException, KeyError) as e:
            self.tell({"refused": repr(e)})
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"refused"]
        start_response("200 OK", [("Content-Type", "text/xml; charset=utf-8")])
        return [answer.encode()]

    def answer(self, query, message):
        """What was answered to the message before, or is now."""
        with self.lock:
            repeat = message.id in self.answers
            if not repeat:
                reply = create_reply("bot " + message.content, message).render()
                self.answers[message.id] = self.crypto.encrypt_message(reply, query["nonce"], query["timestamp"])
            self.tell({"msg_id": str(message.id), "openid": message.source, "query_openid": query["openid"], "repeat": repeat})
            return self.answers[message.id]

    def tell(self, line):
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True
    request_queue_size = 128


class Quiet(WSGIRequestHandler):
    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = make_server("127.0.0.1", 0, Bot(*sys.argv[1:4]), Server, Quiet)
    print(server.server_port, flush=True)
    server.serve_forever()
