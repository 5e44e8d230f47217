"""Listening sockets: the Unix socket, where the kernel identifies the caller, and the TCP port, where a token does.

One connection too many is refused before anything is made for it, and after a moment: to build a connection and its
parser only to refuse it takes ten times as long as to accept it. Whoever is refused and tries again at once is slowed
down, since the refusal is sent when `refusal_seconds` have passed.
"""

import asyncio
import contextlib
import logging
import os
import pwd
import socket
import ssl
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn

from oarlock.config import Config
from oarlock.model.errors import ConfigRefused, Forbidden, PortTaken, TooManyAtOnce
from oarlock.server.http import tls
from oarlock.server.http.connection import (
    PROXY,
    PROXY_SOCKET,
    Connection,
    ConnectionLimits,
    CountedConnection,
    caller_of,
    peer_of,
    refusal_text,
)
from oarlock.server.passwords.pam import PamCheck
from oarlock.server.process.reserves import connection_shares, descriptor_limit
from oarlock.server.rules import python_rules
from oarlock.web import app
from oarlock.web.core import ServerInterface
from oarlock.web.dispatch import Dispatcher
from oarlock.web.passwords import PasswordDoor
from oarlock.web.policy import AccessPolicy
from oarlock.web.submission_service import SubmissionService

_MOST_REFUSED_AT_ONCE = 64
"""So many are refused before the event loop does other work."""

_LEAST_TO_DELAY = 16


class AcceptGuard:
    """Decides which connections come in, and refuses the others when their time has come."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._refused: deque[tuple[float, socket.socket, bytes]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def admit(
        self, connection: socket.socket, address: Any, *, is_tls: bool, proxies: Collection[int] | None = None
    ) -> socket.socket | None:
        """Return a connection that may come in, counted; one that may not is closed, now or soon.

        `proxies`: whose processes may connect there, for the proxy's socket.
        """
        caller: int | str
        if proxies is not None:
            caller = PROXY
            if peer_of(connection).uid not in proxies:
                self._refuse_later(connection, _not_the_proxy())
                return None
        elif connection.family == socket.AF_UNIX:
            caller = peer_of(connection).uid
        elif self._limits.admits(address[0]):
            caller = caller_of(address[0])
        else:
            connection.close()
            return None
        refusal = self._limits.refusal(caller)
        if refusal is not None:
            # Whoever speaks TLS could not read the refusal.
            self._refuse_later(connection, b"" if is_tls else _text(str(refusal), refusal.hint))
            return None
        counted = CountedConnection(connection.family, connection.type, connection.proto, connection.detach())
        counted.count(self._limits, caller)
        return counted

    def close(self) -> None:
        """Close the connections that wait for their refusal."""
        if self._timer is not None:
            self._timer.cancel()
        while self._refused:
            self._refused.popleft()[1].close()

    def _refuse_later(self, connection: socket.socket, text: bytes) -> None:
        if len(self._refused) >= max(self._limits.most // 4, _LEAST_TO_DELAY):  # they take descriptors, too
            _refuse(connection, text)
            return
        loop = asyncio.get_running_loop()
        self._refused.append((loop.time() + self._limits.refusal_seconds, connection, text))
        if self._timer is None:
            self._timer = loop.call_later(self._limits.refusal_seconds, self._refuse_due)

    def _refuse_due(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        for _ in range(_MOST_REFUSED_AT_ONCE):
            if not self._refused or self._refused[0][0] > loop.time():
                break
            _, connection, text = self._refused.popleft()
            _refuse(connection, text)
        if self._refused:
            self._timer = loop.call_later(max(0.0, self._refused[0][0] - loop.time()), self._refuse_due)


class GuardedSocket(socket.socket):
    """A listening socket whose guard, once there is one, looks at each connection first."""

    guard: AcceptGuard | None = None
    is_tls = False
    proxies: Collection[int] | None = None

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection that may come in; without one, do as if nobody had connected."""
        for _ in range(_MOST_REFUSED_AT_ONCE):
            connection, address = super().accept()
            if self.guard is None:
                return connection, address
            admitted = self.guard.admit(connection, address, is_tls=self.is_tls, proxies=self.proxies)
            if admitted is not None:
                return admitted, address
        raise BlockingIOError


@lru_cache(maxsize=16)
def _text(sentence: str, hint: str) -> bytes:
    return refusal_text(TooManyAtOnce(sentence, hint=hint))


@lru_cache(maxsize=1)
def _not_the_proxy() -> bytes:
    return refusal_text(
        Forbidden("This socket is the proxy's.", hint="PORTAL_PROXY_USERS in the server's settings names its account.")
    )


def _refuse(connection: socket.socket, text: bytes) -> None:
    with contextlib.suppress(OSError):
        # What was sent is read first: a connection closed with unread bytes is reset, and the refusal lost.
        connection.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            connection.recv(65_536)
        connection.send(text)
    connection.close()


log = logging.getLogger(__name__)

SOCKET = "server.sock"
KEEP_ALIVE_SECONDS = 5
STOP_SECONDS = 2
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets that listen: the Unix one, those of the port, and that of a proxy that names users."""

    unix: GuardedSocket
    tcp: Sequence[GuardedSocket]
    path: Path
    tls: ssl.SSLContext | None = None  # at the port
    proxy: GuardedSocket | None = None

    @property
    def local(self) -> list[GuardedSocket]:
        """The Unix sockets."""
        return [self.unix] if self.proxy is None else [self.unix, self.proxy]

    @property
    def all(self) -> list[GuardedSocket]:
        """All sockets."""
        return [*self.local, *self.tcp]

    @property
    def port(self) -> int:
        """The port that was really taken."""
        return int(self.tcp[0].getsockname()[1])


async def serve_http(
    core: ServerInterface, verbs: Collection[str] | None = None, *, read_only: bool = False,
    ready: Callable[[], None] | None = None,
) -> None:  # fmt: skip
    """Answer requests until cancelled; then finish what is under way, for a moment, and go. `verbs`: only those.

    `read_only`: the cluster is another's, and nothing there is changed. `ready` is called once connections are
    accepted.
    """
    listeners = await listen(core)
    if ready is not None:
        ready()
    site = replace(AccessPolicy.of(core.config), read_only=read_only)
    shares = connection_shares(descriptor_limit())
    limits = ConnectionLimits(core.config.allowed_networks, most=shares.most, most_at_port=shares.most_at_port)
    if core.config.tls_ended_by_proxy:
        limits.most_of_address = shares.most_at_port  # the address of the proxy is that of everybody
    await answer(core, listeners, site, limits, verbs)


async def listen(core: ServerInterface) -> Listeners:
    """Open the socket in the state directory and the port of the settings; `PortTaken` when it is in use."""
    config = core.config
    tls_context = tls.server_context(config)
    tcp = await _open_port(config.server_hostname, config.server_port)
    path = core.state_dir / SOCKET
    try:
        _check_secrecy(config, tcp, tls_context)
        proxies = _proxies(config)
        unix = _open_unix(path, mode=0o666 if os.geteuid() == 0 or config.serve_everybody else 0o600)
        return Listeners(unix, tcp, path, tls_context, _open_proxy(core.state_dir, proxies))
    except (PortTaken, ConfigRefused):
        for sock in tcp:
            sock.close()
        raise


async def answer(
    core: ServerInterface, listeners: Listeners, site: AccessPolicy, limits: ConnectionLimits,
    verbs: Collection[str] | None = None,
) -> None:  # fmt: skip
    """Serve on these sockets until cancelled."""
    service = core.config.portal_pam_service
    passwords = PasswordDoor(PamCheck(service)) if service else None
    dispatcher = Dispatcher(core, site, SubmissionService(core, python_rules.run), passwords)
    server = _Server(_settings(dispatcher, limits, verbs), listeners)
    guard = AcceptGuard(limits)
    for sock in listeners.all:
        sock.guard = guard
        sock.is_tls = sock in listeners.tcp and listeners.tls is not None
    serving = asyncio.create_task(server.serve(sockets=listeners.all))  # type: ignore[arg-type]
    encrypted = "yes" if listeners.tls else "no"
    log.info("listening", extra={"socket": str(listeners.path), "port": listeners.port, "tls": encrypted})
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        core.stopping.set()  # live pages end by themselves
        await _stop_accepting(server, serving, listeners)
        server.should_exit = True
        await asyncio.wait({serving}, timeout=STOP_SECONDS + 1)
        raise
    finally:
        serving.cancel()
        await _abort_connections(server)
        guard.close()
        dispatcher.close()
        listeners.path.unlink(missing_ok=True)
        if listeners.proxy is not None:
            listeners.path.with_name(PROXY_SOCKET).unlink(missing_ok=True)
        for sock in listeners.all:
            sock.close()


async def _stop_accepting(server: uvicorn.Server, serving: asyncio.Task[None], listeners: Listeners) -> None:
    """Take no further connection, and wait until those that were accepted are in uvicorn's list of connections.

    asyncio drops a connection without closing it if its server is closed between the acceptance and the next turn of
    the loop. uvicorn does that to whoever is accepted while it starts, if it is to stop by then.
    """
    while not (server.started or serving.done()):  # noqa: ASYNC110 (uvicorn has no event for it)
        await asyncio.sleep(0)
    for sock in listeners.all:
        asyncio.get_running_loop().remove_reader(sock.fileno())
    for _ in ("transport", "protocol"):  # each takes a turn of the loop
        await asyncio.sleep(0)


async def _abort_connections(server: uvicorn.Server) -> None:
    """Abort connections whose clients did not read their response in time."""
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)  # an aborted transport is closed at the next turn of the loop


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers (the server around it has its own), and with TLS at the port alone."""

    def __init__(self, config: uvicorn.Config, listeners: Listeners) -> None:
        super().__init__(config)
        self._listeners = listeners

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve the Unix socket in the clear and, where there is a certificate, the port with TLS.

        uvicorn knows one certificate for all its sockets; hence the port is added here.
        """
        context = self._listeners.tls
        if context is None:
            await super().startup(sockets)
            return
        await super().startup(self._listeners.local)  # type: ignore[arg-type]
        loop, config = asyncio.get_running_loop(), self.config

        def connection() -> asyncio.Protocol:
            return config.http_protocol_class(  # type: ignore[call-arg]
                config=config, server_state=self.server_state, app_state=self.lifespan.state
            )

        for sock in self._listeners.tcp:
            server = await loop.create_server(
                connection, sock=sock, ssl=context, ssl_handshake_timeout=tls.HANDSHAKE_SECONDS, backlog=_BACKLOG
            )
            self.servers.append(server)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield


def _settings(dispatcher: Dispatcher, limits: ConnectionLimits, verbs: Collection[str] | None) -> uvicorn.Config:
    return uvicorn.Config(
        app.build(dispatcher, verbs),
        http=partial(Connection, limits),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        backlog=_BACKLOG,
    )


def _check_secrecy(config: Config, tcp: Sequence[socket.socket], context: ssl.SSLContext | None) -> None:
    """Refuse to listen beyond this machine in the clear: tokens would travel readable (`ConfigRefused`)."""
    if context is not None or config.tls_ended_by_proxy:
        return
    beyond = [name for sock in tcp if not ip_address(name := sock.getsockname()[0].partition("%")[0]).is_loopback]
    if beyond:
        raise ConfigRefused(
            f"SERVER_HOSTNAME {config.server_hostname} means {beyond[0]}: tokens would cross the network unencrypted.",
            hint="Set TLS_CERTIFICATE and TLS_KEY; or TLS_ENDED_BY_PROXY=yes where a proxy before it speaks TLS.",
        )


def _proxies(config: Config) -> frozenset[int] | None:
    """Return whose processes may connect at the proxy's socket; None if there is none."""
    if not config.portal_user_header or not config.portal:
        return None
    try:
        named = {pwd.getpwnam(name).pw_uid for name in config.portal_proxy_users}
    except KeyError as unknown:
        raise ConfigRefused(
            f"PORTAL_PROXY_USERS: {unknown.args[0]}.", hint="Name the account that the proxy runs as, as in www-data."
        ) from None
    return frozenset(named or {0, os.geteuid()})


def _open_proxy(state_dir: Path, proxies: frozenset[int] | None) -> GuardedSocket | None:
    if proxies is None:
        (state_dir / PROXY_SOCKET).unlink(missing_ok=True)
        return None
    sock = _open_unix(state_dir / PROXY_SOCKET, mode=0o666)  # the kernel says who connects
    sock.proxies = proxies
    return sock


def _open_unix(path: Path, *, mode: int) -> GuardedSocket:
    """Listen at a path; remove what a dead server left there. Whoever can reach the directory can connect.

    The socket listens before it is renamed to its path, so that no client that sees the path is refused.
    """
    early = path.with_name(path.name + "~")
    early.unlink(missing_ok=True)
    sock = GuardedSocket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(early))
        early.chmod(mode)
        sock.listen(_BACKLOG)
        early.rename(path)
    except OSError as problem:
        sock.close()
        raise PortTaken(
            f"Cannot listen at {path}: {problem.strerror or problem}.", hint="Choose another state directory."
        ) from problem
    return sock


async def _open_port(host: str, port: int) -> list[GuardedSocket]:
    """Listen on a port, at every address that the host name stands for."""
    loop = asyncio.get_running_loop()
    try:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as unknown:
        raise PortTaken(
            f"Cannot listen on {host}: {unknown.strerror}.", hint="SERVER_HOSTNAME in the settings chooses another."
        ) from unknown
    opened: list[GuardedSocket] = []
    problem: OSError | None = None
    for family, kind, protocol, _, address in addresses:
        sock = GuardedSocket(family, kind, protocol)
        try:
            _bind(sock, (address[0], opened[0].getsockname()[1] if opened else port, *address[2:]))
            opened.append(sock)
        except OSError as error:
            sock.close()
            problem = error
    if not opened:
        raise PortTaken(
            f"Cannot listen on port {port} of {host}: {problem.strerror if problem else 'no such host'}.",
            hint="SERVER_HOSTNAME and SERVER_PORT in the settings choose another.",
        ) from problem
    return opened


def _bind(sock: socket.socket, address: tuple[object, ...]) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind(address)
    sock.listen(_BACKLOG)
