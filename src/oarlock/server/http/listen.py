"""Listening sockets: the Unix socket, where the kernel identifies the caller, and the TCP port, where a token does."""

import asyncio
import contextlib
import functools
import logging
import os
import socket
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

import uvicorn

from oarlock.config import Config
from oarlock.model.errors import ConfigRefused, PortTaken
from oarlock.server.http import descriptors, tls
from oarlock.server.http.accepting import AcceptGuard, GuardedSocket
from oarlock.server.http.connection import Connection, ConnectionLimits
from oarlock.server.nodes import python_rules
from oarlock.web import app
from oarlock.web.core import ServerInterface
from oarlock.web.dispatch import Dispatcher
from oarlock.web.policy import AccessPolicy
from oarlock.web.submission_service import SubmissionService

log = logging.getLogger(__name__)

SOCKET = "server.sock"
KEEP_ALIVE_SECONDS = 5
STOP_SECONDS = 2
_BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets that listen: the Unix one, and those of the port."""

    unix: GuardedSocket
    tcp: Sequence[GuardedSocket]
    path: Path
    tls: ssl.SSLContext | None = None  # at the port

    @property
    def port(self) -> int:
        """The port that was really taken."""
        return int(self.tcp[0].getsockname()[1])


async def serve_http(core: ServerInterface) -> None:
    """Answer requests until cancelled; then finish what is under way, for a moment, and go."""
    listeners = await listen(core)
    site = AccessPolicy.of(core.config)
    shares = descriptors.connection_shares(descriptors.limit())
    limits = ConnectionLimits(core.config.allowed_networks, most=shares.most, most_at_port=shares.most_at_port)
    await answer(core, listeners, site, limits)


async def listen(core: ServerInterface) -> Listeners:
    """Open the socket in the state directory and the port of the settings; `PortTaken` when it is in use."""
    config = core.config
    tls_context = tls.server_context(config)
    tcp = await _open_port(config.server_hostname, config.server_port)
    path = core.state_dir / SOCKET
    try:
        _check_secrecy(config, tcp, tls_context)
        return Listeners(_open_unix(path), tcp, path, tls_context)
    except (PortTaken, ConfigRefused):
        for sock in tcp:
            sock.close()
        raise


async def answer(core: ServerInterface, listeners: Listeners, site: AccessPolicy, limits: ConnectionLimits) -> None:
    """Serve on these sockets until cancelled."""
    dispatcher = Dispatcher(core, site, SubmissionService(core, python_rules.run))
    server = _Server(_settings(dispatcher, limits), listeners)
    guard = AcceptGuard(limits)
    for sock in (listeners.unix, *listeners.tcp):
        sock.guard = guard
        sock.is_tls = sock is not listeners.unix and listeners.tls is not None
    serving = asyncio.create_task(server.serve(sockets=[listeners.unix, *listeners.tcp]))
    encrypted = "yes" if listeners.tls else "no"
    log.info("listening", extra={"socket": str(listeners.path), "port": listeners.port, "tls": encrypted})
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        await _stop_accepting(server, serving, listeners)
        server.should_exit = True
        await asyncio.wait({serving}, timeout=STOP_SECONDS + 1)
        raise
    finally:
        serving.cancel()
        await _abort_connections(server)
        guard.close()
        dispatcher.accounts.close()
        listeners.path.unlink(missing_ok=True)
        for sock in (listeners.unix, *listeners.tcp):
            sock.close()


async def _stop_accepting(server: uvicorn.Server, serving: asyncio.Task[None], listeners: Listeners) -> None:
    """Take no further connection, and wait until those that were accepted are in uvicorn's list of connections.

    asyncio drops a connection without closing it if its server is closed between the acceptance and the next turn of
    the loop. uvicorn does that to whoever is accepted while it starts, if it is to stop by then.
    """
    while not (server.started or serving.done()):  # noqa: ASYNC110 (uvicorn has no event for it)
        await asyncio.sleep(0)
    for sock in (listeners.unix, *listeners.tcp):
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
        await super().startup([self._listeners.unix])
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


def _settings(dispatcher: Dispatcher, limits: ConnectionLimits) -> uvicorn.Config:
    return uvicorn.Config(
        app.build(dispatcher),
        http=functools.partial(Connection, limits),  # type: ignore[arg-type]
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


def _open_unix(path: Path) -> GuardedSocket:
    """Listen at a path; remove what a dead server left there. Whoever can reach the directory can connect.

    The socket listens before it is renamed to its path, so that no client that sees the path is refused.
    """
    early = path.with_name(path.name + "~")
    early.unlink(missing_ok=True)
    sock = GuardedSocket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(early))
        early.chmod(0o600 if os.geteuid() else 0o666)
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
