"""One connection to a node program: a handshake with a timeout, then requests, responses and events."""

import asyncio
import hashlib
import json
import logging
import secrets
from collections import deque
from collections.abc import Callable, Coroutine
from functools import cache
from pathlib import Path
from typing import Any

import oarlock.node
from oarlock.job.run.reports import Hello
from oarlock.model.errors import NodeRefused, NodeUnreachable
from oarlock.node.program import loader, tools
from oarlock.node.wire.channel import (
    ANSWER,
    EVENT,
    PROTOCOL,
    RAW,
    REQUEST,
    SAMPLES,
    BadFrame,
    Body,
    Frame,
    FrameReader,
    encode_frame,
)
from oarlock.node.wire.messages import NodeSettings
from oarlock.node.wire.stream import FIRST_CLIENT_STREAM
from oarlock.server.nodes.client_on_node import ClientOnNode
from oarlock.server.nodes.command import NodeCommand
from oarlock.server.nodes.processes import LocalNodeProcess, NodeProcess

log = logging.getLogger(__name__)

_NOISE = 1 << 20  # bytes that a login shell may print before the marker
_NOT_A_HELLO = (KeyError, ValueError, TypeError, OverflowError, AttributeError)
_MOST_CLIENTS = 1024  # connections of processes on a node; its own program allows fewer


class OtherProgram(EOFError):
    """A node program of another version: it does not share our messages."""


OnClient = Callable[[ClientOnNode], None]
"""Takes the connection of a process on a node."""


@cache
def node_sources() -> dict[str, str]:
    """Read the modules that are sent to nodes: the package `node`, and what the commands of jobs are made of."""
    root = Path(oarlock.node.__file__).parent
    sources = {name: _source(root.parent, name) for name in tools.MODULES}
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(("oarlock", "node", *(part for part in parts if part != "__init__")))
        sources[name] = path.read_text()
    return sources


def _source(root: Path, name: str) -> str:
    """Read one module of the package at `root`."""
    path = root.joinpath(*name.split(".")[1:])
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


@cache
def _compiled_modules() -> dict[str, bytes]:
    """Compile what the node program imports; the rest of what travels becomes commands of jobs, as text."""
    return loader.compile_modules({name: text for name, text in node_sources().items() if _is_of_program(name)})


def _is_of_program(name: str) -> bool:
    return name == "oarlock" or f"{name}.".startswith("oarlock.node.")


@cache
def _packed_modules(*, same_python: bool) -> bytes:
    """Pack the node program, compiled where the node has this server's Python."""
    return loader.pack_modules(node_sources(), _compiled_modules() if same_python else {})


def pack_program(settings: NodeSettings, *, same_python: bool) -> bytes:
    """Make what is sent to a node that has nothing but Python."""
    return loader.pack_program(
        node_sources()[loader.__name__],
        _packed_modules(same_python=same_python),
        settings._asdict(),
        fingerprint=node_fingerprint(),
        compiled=_compiled_modules()[loader.__name__] if same_python else b"",
    )


@cache
def node_fingerprint() -> str:
    """Return the fingerprint of the node program, to compare it with an installed one."""
    return hashlib.sha256(json.dumps(node_sources(), sort_keys=True).encode()).hexdigest()[:12]


class NodeChannel:
    """An open connection. `ended` is set when the other side closes it."""

    def __init__(self, node: str, process: NodeProcess, on_event: Callable[[Body], None], on_client: OnClient) -> None:
        self.node, self._process, self._on_event, self._on_client = node, process, on_event, on_client
        self._number = 0
        self._waiting: dict[int, asyncio.Future[Body]] = {}
        self._to_send = bytearray()
        self._stderr_lines: deque[str] = deque(maxlen=20)
        self._hello: asyncio.Future[Body] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self.on_samples: Callable[[bytes], None] = lambda _data: None
        self._streams: dict[int, Callable[[bytes], None]] = {}
        self._last_stream = SAMPLES
        self._clients: dict[int, ClientOnNode] = {}
        self.ended = asyncio.Event()
        self.why = "closed"

    @classmethod
    async def open(
        cls,
        settings: NodeSettings,
        command: NodeCommand,
        on_event: Callable[[Body], None],
        on_client: OnClient,
        *,
        seconds: float,
    ) -> tuple["NodeChannel", Hello]:
        """Start the node program; return the channel and the node's hello, or raise `NodeUnreachable`."""
        nonce = secrets.token_hex(8)
        process = await LocalNodeProcess.start(command.arguments(loader.line(nonce)))
        channel = cls(settings.node, process, on_event, on_client)
        shake_hands = (
            channel._handshake_installed(settings) if command.installed else channel._handshake(nonce, settings)
        )
        return channel, await channel._opened(shake_hands, seconds)

    @classmethod
    async def accept(
        cls,
        settings: NodeSettings,
        process: NodeProcess,
        on_event: Callable[[Body], None],
        on_client: OnClient,
        *,
        seconds: float,
    ) -> tuple["NodeChannel", Hello]:
        """Greet a node program that connected to us, as `open` does with one that we start."""
        channel = cls(settings.node, process, on_event, on_client)
        return channel, await channel._opened(channel._handshake_installed(settings), seconds)

    async def _opened(self, shake_hands: Coroutine[Any, Any, Hello], seconds: float) -> Hello:
        try:
            async with asyncio.timeout(seconds):
                return await shake_hands
        except (TimeoutError, OSError, EOFError, BadFrame, *_NOT_A_HELLO) as error:
            await self.close(str(error) or type(error).__name__)
            raise NodeUnreachable(self.node, self._reason(error, seconds)) from error
        except BaseException:
            await self.close("cancelled")
            raise

    def _reason(self, error: BaseException, seconds: float) -> str:
        printed = " / ".join(self._stderr_lines)
        reason = f"no answer within {seconds:.0f} s" if isinstance(error, TimeoutError) else str(error)
        return f"{reason}: {printed}" if printed else reason

    async def _handshake(self, nonce: str, settings: NodeSettings) -> Hello:
        self._tasks.append(asyncio.create_task(self._listen_stderr()))
        python, rest = await self._skip_noise(loader.marker(nonce))
        same_python = python == loader.python_build()
        self._process.write(await asyncio.to_thread(pack_program, settings, same_python=same_python))
        return await self._begin(rest)

    async def _handshake_installed(self, settings: NodeSettings) -> Hello:
        """Shake hands with an installed program, which must have our fingerprint: both sides share the messages."""
        self._tasks.append(asyncio.create_task(self._listen_stderr()))
        theirs, rest = await self._skip_noise(loader.installed_marker())
        ours = await asyncio.to_thread(node_fingerprint)
        if theirs != ours:
            raise OtherProgram(
                f"its node program is another ({theirs[:20]}) than this server's ({ours}); "
                f"{self._process.way_to_update}"
            )
        chosen = {name: value for name, value in settings._asdict().items() if name in loader.CHOSEN}
        self._process.write(json.dumps(chosen).encode() + b"\n")
        return await self._begin(rest)

    async def _begin(self, rest: bytes) -> Hello:
        self._tasks.append(asyncio.create_task(self._listen(rest)))
        return _hello(await self._hello)

    async def _skip_noise(self, marker: bytes) -> tuple[str, bytes]:
        """Read up to the end of the marker's line; return the rest of that line, and the bytes after it."""
        seen = b""
        while True:
            at = seen.find(marker)
            end = seen.find(b"\n", at + len(marker)) if at >= 0 else -1
            if end >= 0:
                return seen[at + len(marker) : end].decode(errors="replace"), seen[end + 1 :]
            if len(seen) > _NOISE:
                raise EOFError(f"{len(seen)} bytes came, but not our marker")
            part = await self._process.read()
            if not part:
                raise EOFError("the connection ended before python3 began")
            seen += part

    async def _listen(self, first: bytes) -> None:
        reader, data = FrameReader(), first
        try:
            while True:
                for frame in reader.feed(data):
                    self._take(frame)
                data = await self._process.read()
                if not data:
                    self.why = self._stderr_lines[-1] if self._stderr_lines else "the connection ended"
                    break
        except BadFrame as error:
            self.why = f"it sent {error}"
        finally:
            self._end()

    def _take(self, frame: Frame) -> None:
        if frame.kind == RAW:
            self._take_raw(frame)
            return
        body = frame.body()
        if frame.kind == ANSWER:
            waiting = self._waiting.pop(frame.number, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(body)
        elif frame.kind == EVENT and body.get("event") == "hello":
            if not self._hello.done():
                self._hello.set_result(body)
        elif frame.kind == EVENT and body.get("event") in {"client", "client-ended"}:
            self._take_client(body)
        elif frame.kind == EVENT:
            self._on_event(body)

    def _take_client(self, body: Body) -> None:
        """Note that a process on the node connected, or left."""
        stream, uid = body.get("stream"), body.get("uid")
        if not (isinstance(stream, int) and FIRST_CLIENT_STREAM <= stream < 1 << 32):
            raise BadFrame(f"a client with the stream {stream!r}")
        if body["event"] == "client-ended":
            if (client := self._clients.pop(stream, None)) is not None:
                client.end()
        elif stream in self._clients or len(self._clients) >= _MOST_CLIENTS or not isinstance(uid, int):
            raise BadFrame(f"a client of user {uid!r} with the stream {stream}, besides {len(self._clients)} others")
        else:
            self._clients[stream] = ClientOnNode(uid, lambda data: self.send_raw(stream, data))
            self._on_client(self._clients[stream])

    def _take_raw(self, frame: Frame) -> None:
        if frame.number == SAMPLES:
            self.on_samples(frame.data)
        elif (client := self._clients.get(frame.number)) is not None:
            client.feed(frame.data)
        elif (on_frame := self._streams.get(frame.number)) is not None:
            on_frame(frame.data)

    @property
    def is_in_use(self) -> bool:
        """Whether somebody waits for an answer, is in a session, sends a file, or is a process of the node."""
        return bool(self._waiting or self._streams or self._clients)

    def add_stream(self, on_frame: Callable[[bytes], None]) -> int:
        """Return the number of a new stream of raw frames, whose frames go to `on_frame`."""
        self._last_stream += 1
        self._streams[self._last_stream] = on_frame
        return self._last_stream

    def remove_stream(self, number: int) -> None:
        """Drop whatever still comes of a stream."""
        self._streams.pop(number, None)

    def send_raw(self, number: int, data: bytes) -> None:
        """Send bytes of a stream; how much may be under way is up to the caller."""
        if not self.ended.is_set():
            self._send_soon(encode_frame(RAW, number, data))

    def _end(self) -> None:
        self.ended.set()
        for client in self._clients.values():
            client.end(with_channel=True)
        self._clients.clear()
        if not self._hello.done():
            self._hello.set_exception(EOFError(f"the node program ended ({self.why})"))
            self._hello.exception()  # retrieved: the opener may be cancelled already, and asyncio would complain
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(NodeUnreachable(self.node, self.why, sent=True))
        self._waiting.clear()

    async def _listen_stderr(self) -> None:
        """Keep the last lines of standard error: ssh's own messages come this way."""
        while True:
            line = await self._process.read_line()
            if not line:
                return
            text = line.decode(errors="replace").strip()[:500]
            self._stderr_lines.append(text)
            log.info("node program printed", extra={"node": self.node, "text": text})

    async def ask(self, verb: str, body: Body | bytes | None = None, *, seconds: float) -> Body:
        """Send a request, a whole one if it is encoded, and wait for its answer. `NodeRefused` carries the node's word.

        After `NodeUnreachable` with `sent` it is not known whether the request was carried out.
        """
        if self.ended.is_set():
            raise NodeUnreachable(self.node, self.why)
        self._number += 1
        number = self._number
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            request = body if isinstance(body, bytes) else {"verb": verb, **(body or {})}
            self._send_soon(encode_frame(REQUEST, number, request))
            async with asyncio.timeout(seconds):
                await self._process.drain()
                body_read: Body = await answer
        except (TimeoutError, ConnectionError) as error:
            raise NodeUnreachable(self.node, f"no answer to `{verb}` within {seconds:.0f} s", sent=True) from error
        finally:
            self._waiting.pop(number, None)
        if "refused" in body_read:
            raise NodeRefused(self.node, str(body_read["refused"]), str(body_read.get("says", "")))
        return body_read

    def tell(self, verb: str, body: Body) -> None:
        """Send a request whose answer is of no interest."""
        if not self.ended.is_set():
            self._number += 1
            self._send_soon(encode_frame(REQUEST, self._number, {"verb": verb, **body}))

    def _send_soon(self, frame: bytes) -> None:
        """Send a frame together with the others of this iteration of the event loop: each write wakes the node."""
        if not self._to_send:
            asyncio.get_running_loop().call_soon(self._send)
        self._to_send += frame

    def _send(self) -> None:
        self._process.write(bytes(self._to_send))
        self._to_send.clear()

    async def close(self, why: str = "closed") -> None:
        """Close the connection; jobs on the node go on."""
        self.why = why
        self._end()
        await self._process.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _hello(body: Body) -> Hello:
    if body.get("protocol") != PROTOCOL:
        raise EOFError(f"the node program speaks protocol {body.get('protocol')!r}, this server {PROTOCOL}")
    return Hello(
        boot=str(body["boot"]),
        cgroups=str(body["cgroups"]),
        missing=tuple(map(str, body["missing"])),
        cpus=int(body["cpus"]),
        memory=int(body["memory"]),
        python=str(body["python"]),
        uid=int(body["uid"]),
        now=float(body["now"]),
        processes=int(body["processes"]),
        unusable={str(path): str(why) for path, why in body.get("unusable", {}).items()},
        instance=str(body.get("instance", "")),
        highest_job=int(body.get("highest_job", 0)),
    )
