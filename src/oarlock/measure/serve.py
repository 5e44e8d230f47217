"""The web server of the agent: `/metrics`, handed out from memory."""

import hmac
import http
import http.server
import ipaddress
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from oarlock.measure.exposition import CONTENT_TYPE, Page
from oarlock.model.errors import ConfigRefused

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 32
IDLE_SECONDS = 120
LANDING = b'<!doctype html><title>oarlock agent</title><p><a href="/metrics">Metrics</a> of the jobs on this node.'


class Access(NamedTuple):
    """Who may read: the certificate of TLS, and a token that scrapes must carry."""

    certificate: Path | None = None
    key: Path | None = None
    token: str | None = None


def check_address(host: str, access: Access, *, open_to_all: bool) -> None:
    """Refuse to listen beyond this machine without TLS and a token, unless it was asked for in so many words."""
    if open_to_all or _is_loopback(host) or (access.certificate and access.token):
        return
    raise ConfigRefused(
        f"Listening on {host} would show users' names and programs to anybody.",
        hint="Give --tls-certificate, --tls-key and --token-file; --open-to-all where the network keeps strangers out.",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Server:
    """Serve the latest page in threads of their own. `oldest_seconds` tells how old a page may be handed out."""

    def __init__(
        self,
        address: tuple[str, int],
        page: Callable[[], Page | None],
        *,
        access: Access = Access(),  # noqa: B008  it is immutable
        oldest_seconds: Callable[[], float] = lambda: float("inf"),
    ) -> None:
        self._server = _Listener(address, page, access, oldest_seconds)
        self._thread = threading.Thread(target=self._server.serve_forever, name="serve", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """Give where it listens, the port that was chosen included."""
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        address: tuple[str, int],
        page: Callable[[], Page | None],
        access: Access,
        oldest_seconds: Callable[[], float],
    ) -> None:
        self.page, self.token, self.oldest_seconds = page, access.token, oldest_seconds
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        try:
            super().__init__(address, _Handler)
        except OSError as error:
            raise ConfigRefused(
                f"Nothing can listen on {address[0]}:{address[1]}: {error.strerror}.", hint="Give another --listen."
            ) from error
        if access.certificate:
            # The handshake is left to the connection's own thread: a silent client must not stop the others.
            self.socket = _context(access).wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def process_request(self, request: object, client_address: object) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)  # type: ignore[arg-type]
        else:
            self.shutdown_request(request)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:  # noqa: ARG002
        log.debug("a scrape broke off", extra={"client": str(client_address)})


def _context(access: Access) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(str(access.certificate), access.key and str(access.key))
    except OSError as error:
        raise ConfigRefused(f"The certificate {access.certificate} cannot be used: {error.strerror}.") from error
    return context


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Listener
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "oarlock-agent", ""
    timeout = IDLE_SECONDS

    def do_GET(self) -> None:
        if self.path.partition("?")[0] == "/metrics":
            self._metrics()
        elif self.path == "/":
            self._answer(200, [LANDING], "text/html; charset=utf-8")
        else:
            self._answer(404, [b"There is only /metrics.\n"])

    do_HEAD = do_GET  # noqa: N815  the name is the library's

    def _metrics(self) -> None:
        page = self.server.page()
        if not self._may_read():
            self.close_connection = True
            self._answer(401, [b"A token is needed.\n"])
        elif page is None or time.time() - page.at > self.server.oldest_seconds():
            self._answer(503, [b"There is no fresh sample.\n"])
        else:
            self._answer(200, list(page.chunks), CONTENT_TYPE)

    def _may_read(self) -> bool:
        token = self.server.token
        given = self.headers.get("Authorization", "")
        return token is None or hmac.compare_digest(given.encode(), f"Bearer {token}".encode())

    def _answer(self, status: int, chunks: list[bytes], kind: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(sum(map(len, chunks))))
        if status == http.HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.writelines(chunks)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        log.debug(format, *arguments)
