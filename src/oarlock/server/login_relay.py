"""The relay of a login host: commands there reach it by a Unix socket, and it asks the server in their name.

The kernel says who connects; the relay puts that number and its own key into the head of the request, takes out
whatever the command said of who it is, and passes everything else on as it comes. It needs no privilege and keeps
nothing.
Standard library only: it is in the package for login hosts.
"""

import asyncio
import contextlib
import json
import logging
import os
import re
import socket
import ssl
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

HEAD_SECONDS = 5.0
HEAD_BYTES = 65_536
CONNECT_SECONDS = 5.0
AWAY_SECONDS = 2.0
"""How long a server that is not reached is tried again: a restart takes less."""

MOST_OF_USER, MOST = 128, 1024
"""Connections at once, of one user and of all."""

_PAUSE = 0.1
_CLOSE_SECONDS = 1.0
_PIECE = 1 << 16
_BACKLOG = 256
_CREDENTIALS = struct.Struct("iII")
_IDENTITY = frozenset({b"authorization", b"proxy-authorization", b"connection", b"cookie"})
_BY_KEY = b"JobKey"  # the scheme of who will show the key of a job, and needs no name
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")
_REQUEST_LINE = re.compile(rb"[A-Z]{3,10} /[!-~]* HTTP/1\.1")


class RelayRefusal(Exception):
    """Why a request is not passed on: the status, a sentence, a hint and its kind."""

    def __init__(self, status: int, sentence: str, *, hint: str = "", kind: str = "BadRequest") -> None:
        super().__init__(sentence)
        self.status, self.hint, self.kind = status, hint, kind


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Where a server is; `context`: how TLS is spoken with it, None for a tunnel that begins on this machine."""

    name: str
    port: int
    context: ssl.SSLContext | None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect; a server that takes the connection and then says nothing is away, too."""
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(
                self.name, self.port, ssl=self.context, server_hostname=self.name if self.context else None
            )
        _keep_alive(writer.get_extra_info("socket"))
        return reader, writer


def _keep_alive(sock: socket.socket) -> None:
    """Make the kernel notice a server's machine that is gone without a word."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
        sock.setsockopt(socket.IPPROTO_TCP, option, value)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class LoginRelay:
    """Passes requests on to the server that answers, with the key of this host."""

    def __init__(self, addresses: Sequence[ServerAddress], key_file: Path) -> None:
        self._addresses, self._key_file = addresses, key_file
        self._at = 0  # the address that answered last
        self._open: Counter[int] = Counter()

    async def serve(self, path: Path) -> None:
        """Listen at a path until cancelled."""
        listener = _listen(path)
        server = await asyncio.start_unix_server(self._serve_one, sock=listener, limit=_PIECE)
        log.info("relaying", extra={"socket": str(path), "servers": [server.name for server in self._addresses]})
        try:
            async with server:
                await server.serve_forever()
        finally:
            path.unlink(missing_ok=True)  # noqa: ASYNC240 - at the very end

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        uid = _uid(writer.get_extra_info("socket"))
        self._open[uid] += 1
        try:
            await self._relay(uid, reader, writer)
        except RelayRefusal as refusal:
            writer.write(_response(refusal))
            with contextlib.suppress(ConnectionError):
                await writer.drain()
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            pass
        except Exception:
            log.exception("a connection failed", extra={"uid": uid})
        finally:
            self._open[uid] -= 1
            if not self._open[uid]:
                del self._open[uid]
            await _close(writer)

    async def _relay(self, uid: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open[uid] > MOST_OF_USER or self._open.total() > MOST:
            raise RelayRefusal(503, "There are too many connections to the relay.", hint="Close some first.")
        head, rest = await _read_head(reader)
        sent = relayed_head(head, uid=uid, key=self._key())
        server_reader, server_writer = await self._connected()
        try:
            server_writer.write(sent + rest)
            # Whichever side closes ends both: a command that was stopped must not hold the server's connection.
            ways = [
                asyncio.create_task(_pass_on(reader, server_writer)),
                asyncio.create_task(_pass_on(server_reader, writer)),
            ]
            _, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in left:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            await _close(server_writer)

    async def _connected(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to the server that answered last, else to another; raise `RelayRefusal` if none answers."""
        deadline = asyncio.get_running_loop().time() + AWAY_SECONDS
        while True:
            for _ in self._addresses:
                try:
                    return await self._addresses[self._at].connect()
                except (OSError, TimeoutError) as problem:
                    why = _reason(problem)
                self._at = (self._at + 1) % len(self._addresses)
            if asyncio.get_running_loop().time() >= deadline:
                break
            await asyncio.sleep(_PAUSE)
        names = ", ".join(f"{address.name}:{address.port}" for address in self._addresses)
        log.warning("no server is reached", extra={"servers": names, "why": why})
        raise RelayRefusal(
            503,
            f"The relay of this host does not reach the server at {names} ({why}); nothing was changed.",
            hint="Try again later.",
            kind="ServerDown",
        )

    def _key(self) -> str:
        """Read the key anew for each request: a new one needs no restart."""
        try:
            return read_key(self._key_file)
        except (OSError, ValueError) as problem:
            log.warning("the key of this host cannot be read", extra={"why": str(problem)})
            raise RelayRefusal(
                503, "The relay of this host has no key.", hint="Its log says more.", kind="ServerFailed"
            ) from problem


async def _close(writer: asyncio.StreamWriter) -> None:
    """Close a connection, and wait until it is: a relay that stops leaves none half closed."""
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await writer.wait_closed()


def read_key(path: Path) -> str:
    """Return the key of this host; `ValueError` for a file that others can read, or that holds none."""
    with path.open() as file:
        # The group may read it: so it looks where systemd hands it over with an access control list.
        if os.fstat(file.fileno()).st_mode & 0o037:
            raise ValueError(f"others can read {path}")
        key = file.read(4096).strip()
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError(f"{path} does not hold a key")
    return key


def relayed_head(head: bytes, *, uid: int, key: str) -> bytes:
    """Return the head of a request with who asks in it, and nothing of what it said about that itself.

    One request goes over one connection. A head that two readers could understand in two ways is refused.
    """
    line, *headers = head.split(b"\r\n")
    if _REQUEST_LINE.fullmatch(line) is None:
        raise RelayRefusal(400, "That is not a request of HTTP/1.1.")
    kept, upgrades, by_key = [], False, False
    for header in headers:
        match = _HEADER.fullmatch(header)
        if match is None:
            raise RelayRefusal(400, "A header of the request cannot be read.")
        name, value = match[1].lower(), match[2].strip()
        by_key = by_key or (name == b"authorization" and value == _BY_KEY)
        upgrades = upgrades or name == b"upgrade"
        if name not in _IDENTITY:
            kept.append(header)
    who = _BY_KEY if by_key else f"Relay {key} {uid}".encode("ascii")
    ours = [b"Authorization: " + who, b"Connection: " + (b"Upgrade" if upgrades else b"close")]
    return b"\r\n".join([line, *ours, *kept, b"", b""])


async def _read_head(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Return the head of a request without its empty line, and what came behind it."""
    head = b""
    async with asyncio.timeout(HEAD_SECONDS):
        while (end := head.find(b"\r\n\r\n")) < 0:
            if len(head) > HEAD_BYTES:
                raise RelayRefusal(413, f"The head of the request is over {HEAD_BYTES} bytes.")
            if not (piece := await reader.read(_PIECE)):
                raise ConnectionError
            head += piece
    return head[:end], head[end + 4 :]


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()


def _uid(sock: socket.socket) -> int:
    """Return the user at the other end of the socket, whom the kernel vouches for."""
    return int(_CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[1])


def _reason(problem: OSError | TimeoutError) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {problem.verify_message}"
    return getattr(problem, "strerror", None) or "no answer"


def _response(refusal: RelayRefusal) -> bytes:
    content = json.dumps({"error": str(refusal), "hint": refusal.hint, "kind": refusal.kind}).encode()
    head = f"HTTP/1.1 {refusal.status} Refused\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return f"{head}content-length: {len(content)}\r\n\r\n".encode() + content


def _listen(path: Path) -> socket.socket:
    """Listen at a path that everybody on this machine may reach; what a dead relay left there is replaced."""
    early = path.with_name(path.name + "~")
    early.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(str(early))
        early.chmod(0o666)
        sock.listen(_BACKLOG)
        early.rename(path)
    except BaseException:
        sock.close()
        raise
    return sock
