"""A management controller that speaks Redfish, for tests: a real HTTP server with sessions that are counted."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Controller(http.server.ThreadingHTTPServer):
    """One chassis a sled. `held` keeps it from answering until it is set."""

    daemon_threads = True

    def __init__(self, watts: float = 200.0, sleds: tuple[str, ...] = ("1",), password: str = "se cret") -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.watts, self.sleds, self.password = watts, sleds, password
        self.logins = self.readings = self.ended = 0
        self.tokens: set[str] = set()
        self.may_answer = threading.Event()
        self.may_answer.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Controller

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.logins += 1
        if given != {"UserName": "monitor", "Password": self.server.password}:
            self._answer(401, {})
            return
        token = f"token{self.server.logins}"
        self.server.tokens.add(token)
        self._answer(201, {}, {"X-Auth-Token": token, "Location": f"/redfish/v1/SessionService/Sessions/{token}"})

    def do_DELETE(self) -> None:
        self.server.tokens.discard(self.path.rpartition("/")[2])
        self.server.ended += 1
        self._answer(204, {})

    def do_GET(self) -> None:
        self.server.may_answer.wait(30)
        if self.headers.get("X-Auth-Token") not in self.server.tokens:
            self._answer(401, {})
            return
        self._answer(200, self._document())

    def _document(self) -> dict[str, Any]:
        if self.path == "/redfish/v1/Chassis":
            return {"Members": [{"@odata.id": f"{self.path}/{sled}"} for sled in self.server.sleds]}
        if self.path.endswith("/Power"):
            self.server.readings += 1
            return {"PowerControl": [{"PowerConsumedWatts": self.server.watts}]}
        return {"Power": {"@odata.id": f"{self.path}/Power"}}

    def _answer(self, status: int, document: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        body = b"" if status == 204 else json.dumps(document).encode()
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def controllers(*made: Controller) -> Iterator[None]:
    """Serve until the end of the test."""
    threads = [threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.01}) for each in made]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for each, thread in zip(made, threads, strict=True):
            each.may_answer.set()
            each.shutdown()
            thread.join()
            each.server_close()
