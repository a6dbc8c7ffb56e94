"""A loopback HTTP server for the tests of the npu2 wheels."""

from __future__ import annotations

import contextlib
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from unittest import mock


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        answer = self.server.routes.get(self.path)
        if answer is None:
            self.send_error(404)
            return
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            answer(self)

    def log_message(self, *_args):
        pass


class Server(ThreadingHTTPServer):
    """Answers what `routes` says for a path, and remembers what was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.routes = {}
        self.asked = []
        self.closing = threading.Event()

    @property
    def base(self):
        return f"http://127.0.0.1:{self.server_port}"

    def body(self, path, data, *, announced=None):
        """Answer with `data`, announcing its length or another one."""

        def answer(request):
            request.send_response(200)
            if announced != "none":
                request.send_header("Content-Length", str(len(data) if announced is None else announced))
            request.end_headers()
            request.wfile.write(data)

        self.routes[path] = answer
        return self.base + path

    def status(self, path, code):
        """Answer with an error code."""
        self.routes[path] = lambda request: request.send_error(code)
        return self.base + path

    def redirect(self, path, to):
        """Answer with a redirect."""

        def answer(request):
            request.send_response(302)
            request.send_header("Location", to)
            request.send_header("Content-Length", "0")
            request.end_headers()

        self.routes[path] = answer
        return self.base + path

    def silence(self, path):
        """Accept the request and say nothing."""
        self.routes[path] = lambda _request: self.closing.wait(60)
        return self.base + path


@contextlib.contextmanager
def serve():
    """Run a server for the length of a with block."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        # A proxy of the machine is not asked for the loopback address.
        with mock.patch.dict(os.environ, {"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}):
            yield server
    finally:
        server.closing.set()
        server.shutdown()
        server.server_close()
        thread.join()
