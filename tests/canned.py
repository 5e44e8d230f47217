"""A server with canned answers on a real socket: it records what arrives and says what it was told to say.

It knows HTTP and nothing of Oarlock, so that tests see the wire as the real server would.
"""

import json
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request as it came: first line, headers (names in small letters) and body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, understood."""
        return json.loads(self.body)


Answer = bytes | None
"""What is sent back; `None` closes the connection without a word."""


def ok(told: Any) -> bytes:
    """Give an answer that says yes."""
    return answer(200, told)


def refusal(status: int, kind: str, error: str, hint: str = "", **more: Any) -> bytes:
    """Give a refusal as the server words it."""
    return answer(status, {"error": error, "hint": hint, "kind": kind, **more})


def answer(status: int, told: Any) -> bytes:
    """Give an answer with a length."""
    body = json.dumps(told).encode()
    return f"HTTP/1.1 {status} Word\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class Canned:
    """The server; `answers` are given one after the other, the last one for ever; `by_path` to `GET /path`."""

    address: str
    listener: socket.socket
    answers: list[Answer] = field(default_factory=list)
    by_path: dict[str, Answer] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    def says(self, *answers: Answer) -> "Canned":
        """Set the answers to come."""
        self.answers = list(answers)
        return self

    def serve(self) -> None:
        """Answer until the listener is closed."""
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                self._one(connection)

    def _one(self, connection: socket.socket) -> None:
        asked = _read(connection)
        if asked is None:
            return
        self.requests.append(asked)
        said = self._answer(f"{asked.method} {asked.path}")
        if said is not None:
            connection.sendall(said)

    def _answer(self, line: str) -> Answer:
        if line in self.by_path:
            return self.by_path[line]
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def _read(connection: socket.socket) -> Request | None:
    got = b""
    while b"\r\n\r\n" not in got:
        piece = connection.recv(65536)
        if not piece:
            return None
        got += piece
    head, _, body = got.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", 0)):
        body += connection.recv(65536)
    method, path, _ = first.split(" ")
    return Request(method, path, headers, body)


def started(listener: socket.socket, address: str, *answers: Answer) -> tuple[Canned, Callable[[], None]]:
    """Serve from a thread; gives the server and the way to end it."""
    server = Canned(address, listener).says(*(answers or (ok({}),)))
    listener.listen(64)
    thread = threading.Thread(target=server.serve)
    thread.start()

    def end() -> None:
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        listener.close()

    return server, end


def unix(folder: Path, *answers: Answer) -> tuple[Canned, Callable[[], None]]:
    """Serve on a Unix socket in a folder."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "server.sock"))
    return started(listener, str(folder / "server.sock"), *answers)


def tcp() -> tuple[Canned, Callable[[], None]]:
    """Serve on a free port of this machine."""
    listener = socket.create_server(("127.0.0.1", 0))
    return started(listener, f"http://127.0.0.1:{listener.getsockname()[1]}")


def tls(pem: Path, key: Path) -> tuple[Canned, Callable[[], None]]:
    """Serve on a free port of this machine, over TLS, as localhost."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    listener = context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True)
    return started(listener, f"https://localhost:{listener.getsockname()[1]}")
