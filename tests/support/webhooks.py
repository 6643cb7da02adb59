"""A webhook: a real HTTP server that keeps what it was sent."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


class Hook(ThreadingHTTPServer):
    """Answers with `status`, after `pause_s`; keeps what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        hook = self
        self.status = 200
        self.drip_s = 0.0
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.over = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                hook.requests.append((self.path, self.headers["Content-Type"], json.loads(body)))
                while hook.drip_s and not hook.over.wait(hook.drip_s):
                    self.wfile.write(b"H")
                self.send_response(hook.status)
                self.send_header("Location", f"{hook.url}/elsewhere")
                self.end_headers()

            def do_GET(self) -> None:
                hook.requests.append((self.path, "GET", {}))

            def log_message(self, *_: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


@pytest.fixture
def hook() -> Iterator[Hook]:
    with Hook() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.over.set()
        server.shutdown()
        thread.join()
