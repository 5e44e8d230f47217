"""The web server of the agent: `/metrics`, handed out from memory.

It is written out here because the standard library's brings its client, mail and TLS along, a fifth of the agent's
memory; a page that is read by a machine needs little of HTTP.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import NamedTuple

from oarlock.measure.exposition import CONTENT_TYPE, MetricsPage
from oarlock.model.errors import ConfigRefused

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 32
IDLE_SECONDS = 120.0
LONGEST_REQUEST = 16 * 1024
_SENT_AT_ONCE = 256 * 1024
_PLAIN = "text/plain; charset=utf-8"
LANDING = b'<!doctype html><title>oarlock agent</title><p><a href="/metrics">Metrics</a> of the jobs on this node.\n'


class MetricsAccess(NamedTuple):
    """Who may read: the certificate of TLS, and a token that scrapes must carry."""

    certificate: Path | None = None
    key: Path | None = None
    token: str | None = None


class HttpRequest(NamedTuple):
    """What was asked; the names of headers are in small letters."""

    method: str
    path: str
    headers: dict[str, str]

    @property
    def keeps(self) -> bool:
        """Return whether the connection stays open for another request."""
        return self.headers.get("connection", "").lower() != "close"


class HttpResponse(NamedTuple):
    """What is sent back."""

    status: HTTPStatus
    kind: str
    pieces: Iterable[bytes]


def parse(head: bytes) -> HttpRequest | None:
    """Read a request without a body; None when it is none."""
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        return None
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if words[2] == "HTTP/1.0":
        headers.setdefault("connection", "close")
    return HttpRequest(words[0], words[1].partition("?")[0], headers)


def check_address(host: str, access: MetricsAccess, *, open_to_all: bool) -> None:
    """Refuse to listen beyond this machine without TLS and a token, unless it was asked for in so many words."""
    loopback = host in {"localhost", "::1"} or host.startswith("127.")
    if open_to_all or loopback or (access.certificate and access.token):
        return
    raise ConfigRefused(
        f"Listening on {host} would show users' names and programs to anybody.",
        hint="Give --tls-certificate, --tls-key and --scrape-token-file; --open-to-all on a trusted network.",
    )


class MetricsServer:
    """Serve the latest page, in a thread for each connection. A page older than `oldest_seconds` is not handed out."""

    def __init__(
        self,
        address: tuple[str, int],
        page: Callable[[], MetricsPage | None],
        access: MetricsAccess | None = None,
        oldest_seconds: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        self._page, self._oldest_seconds = page, oldest_seconds
        self._token = access.token if access else None
        self._secure = _securing(access) if access and access.certificate else None
        self._socket = _listening(address)
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._thread = threading.Thread(target=self._accept, name="serve", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Return where it listens, with the port that the kernel chose for port 0."""
        host, port = self._socket.getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Stop listening; answers under way are sent."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def respond(self, request: HttpRequest | None) -> HttpResponse:
        """Return the response to a request."""
        if request is None or request.method not in {"GET", "HEAD"}:
            return HttpResponse(HTTPStatus.BAD_REQUEST, _PLAIN, [b"Only GET is understood.\n"])
        if request.path == "/":
            return HttpResponse(HTTPStatus.OK, "text/html; charset=utf-8", [LANDING])
        if request.path != "/metrics":
            return HttpResponse(HTTPStatus.NOT_FOUND, _PLAIN, [b"There is only /metrics.\n"])
        if self._token and not _equal(request.headers.get("authorization", ""), f"Bearer {self._token}"):
            return HttpResponse(HTTPStatus.UNAUTHORIZED, _PLAIN, [b"A token is needed.\n"])
        page = self._page()
        if page is None or time.time() - page.at > self._oldest_seconds():
            return HttpResponse(HTTPStatus.SERVICE_UNAVAILABLE, _PLAIN, [b"There is no fresh sample.\n"])
        return HttpResponse(HTTPStatus.OK, CONTENT_TYPE, page.pieces)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # closed
            if self._free.acquire(blocking=False):
                threading.Thread(target=self._serve_connection, args=(connection,), name="scrape", daemon=True).start()
            else:
                connection.close()

    def _serve_connection(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(IDLE_SECONDS)
            with self._secure(connection) if self._secure else connection as secured:
                while self._serve_one(secured):
                    pass
        except OSError as error:
            log.debug("a scrape broke off: %s", error)
        finally:
            connection.close()
            self._free.release()

    def _serve_one(self, connection: socket.socket) -> bool:
        """Answer one request; false when the connection is over."""
        head = _head(connection)
        if not head:
            return False
        request = parse(head)
        response = self.respond(request)
        _send(connection, response, body=request is None or request.method != "HEAD")
        return request is not None and request.keeps and response.status != HTTPStatus.UNAUTHORIZED


def _equal(sent: str, expected: str) -> bool:
    """Compare secrets in constant time."""
    from hmac import compare_digest  # it brings a large library along

    return compare_digest(sent.encode(), expected.encode())


def _head(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        piece = connection.recv(LONGEST_REQUEST)
        received += piece
        if not piece or len(received) > LONGEST_REQUEST:
            return b""
    return received.partition(b"\r\n\r\n")[0]


def _send(connection: socket.socket, response: HttpResponse, *, body: bool) -> None:
    pieces = list(response.pieces)
    head = [f"HTTP/1.1 {response.status.value} {response.status.phrase}", f"Content-Type: {response.kind}",
            f"Content-Length: {sum(map(len, pieces))}"]  # fmt: skip
    if response.status == HTTPStatus.UNAUTHORIZED:
        head += ["WWW-Authenticate: Bearer", "Connection: close"]
    waiting = ["\r\n".join([*head, "", ""]).encode()]
    size = 0
    for piece in pieces if body else ():
        waiting.append(piece)
        size += len(piece)
        if size > _SENT_AT_ONCE:
            connection.sendall(b"".join(waiting))
            waiting, size = [], 0
    connection.sendall(b"".join(waiting))


def _listening(address: tuple[str, int]) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        return socket.create_server(address, family=family)
    except OSError as error:
        raise ConfigRefused(
            f"Nothing can listen on {address[0]}:{address[1]}: {error.strerror}.", hint="Give another --listen."
        ) from error


def _securing(access: MetricsAccess) -> Callable[[socket.socket], socket.socket]:
    import ssl  # it is large, and most agents are scraped on their own machine

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(str(access.certificate), access.key and str(access.key))
    except OSError as error:
        raise ConfigRefused(f"The certificate {access.certificate} cannot be used: {error}.") from error
    return lambda connection: context.wrap_socket(connection, server_side=True)
