"""A served model: it tells its version."""

import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        text = os.environ.get("VERSION", "1").encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


ThreadingHTTPServer((os.environ["CARREL_HOST"], int(os.environ["PORT"])), Answers).serve_forever()
