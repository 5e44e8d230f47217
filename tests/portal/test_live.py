"""Live pages: one event for all viewers, the newest only, no slot of requests, and an end when the server stops."""

import asyncio
import os
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from oarlock.model.errors import DatabaseAway
from oarlock.web import dispatch
from oarlock.web.pages.parts import live
from oarlock.web.pages.parts.live import LiveHub, Produce
from tests.bed import run_async
from tests.portal.browsing import Visitor, signed_in
from tests.portal.site import OWNER, made_up_site
from tests.web.nodeless_server import Running


@dataclass
class Core:
    """What a feed needs of a server."""

    changes: int = 0
    stopping: asyncio.Event = field(default_factory=asyncio.Event)


async def _always() -> bool:
    return True


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LEAST_SECONDS", 0.01)
    monkeypatch.setattr(live, "MOST_SECONDS", 0.05)
    monkeypatch.setattr(live, "COST", 0.0)


@run_async
async def test_what_several_look_at_is_made_once(quick):
    core, made = Core(), []

    async def produce() -> dict[str, str]:
        made.append(len(made))
        return {"part": str(made[-1])}

    hub = LiveHub(core)
    streams = [hub.stream("same", produce, _always) for _ in range(5)]
    first = await asyncio.gather(*(anext(stream) for stream in streams))
    assert first == [b'data: {"part":"0"}\n\n'] * 5
    assert made == [0]
    core.stopping.set()
    for stream in streams:
        await stream.aclose()


@run_async
async def test_a_slow_viewer_gets_the_newest_only_and_equal_ones_not_again(quick):
    core, texts = Core(), iter(["a", "b", "c", "c", "c"])
    last = "c"

    async def produce() -> dict[str, str]:
        core.changes += 1
        return {"part": next(texts, last)}

    hub = LiveHub(core)
    slow = hub.stream("key", produce, _always)
    quick_one = hub.stream("key", produce, _always)
    assert await anext(slow) == b'data: {"part":"a"}\n\n'
    seen = [await anext(quick_one) for _ in range(5)]
    assert b'data: {"part":"c"}\n\n' in seen
    assert seen[-1] == b"data: {}\n\n"
    assert await anext(slow) == b'data: {"part":"c"}\n\n'
    core.stopping.set()
    await slow.aclose()
    await quick_one.aclose()


@run_async
async def test_a_stream_ends_with_the_server_its_session_and_its_source(quick, monkeypatch):
    core = Core()

    async def produce() -> dict[str, str]:
        return {"part": "x"}

    async def away() -> dict[str, str]:
        raise DatabaseAway("The database does not answer.")

    async def gone() -> bool:
        return False

    hub = LiveHub(core)
    assert [event async for event in hub.stream("away", away, _always)] == []
    monkeypatch.setattr(live, "CHECK_SECONDS", 0.0)
    assert [event async for event in hub.stream("signed out", produce, gone)] == [b'data: {"part":"x"}\n\n']
    monkeypatch.setattr(live, "CHECK_SECONDS", 60.0)
    stream = hub.stream("stops", produce, _always)
    await anext(stream)
    core.stopping.set()
    assert [event async for event in stream if event != b"data: {}\n\n"] == []


@run_async
async def test_what_is_alike_rests_the_longer_the_more_there_is_of_it(quick, monkeypatch):
    monkeypatch.setattr(live, "COST", 2.0)
    core, made = Core(), Counter()

    def producer(name: str) -> Produce:
        async def produce() -> dict[str, str]:
            made[name] += 1
            core.changes += 1
            await asyncio.sleep(0.01)
            return {"part": str(made[name])}

        return produce

    async def look(kind: str, viewer: int) -> None:
        async for _ in hub.stream(((kind, viewer), "en"), producer(kind), _always):
            pass

    hub = LiveHub(core)
    looking = [asyncio.create_task(look("many", viewer)) for viewer in range(10)]
    looking.append(asyncio.create_task(look("one", 0)))
    await asyncio.sleep(0.5)
    core.stopping.set()
    await asyncio.gather(*looking)
    # Alone an event follows the other after three times what it takes; ten alike are made once in twenty-one times.
    assert made["one"] > 2 * made["many"] / 10


needs_users = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


@pytest.fixture
def site(sqlite_path: Path) -> Iterator[Running]:
    with made_up_site(sqlite_path, measured=False) as running:
        yield running


def _opened(visitor: Visitor, path: str) -> socket.socket:
    """Open a stream and read its first event."""
    sock = socket.create_connection(("127.0.0.1", visitor.port), timeout=20)
    cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    sock.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nCookie: {cookie}\r\n\r\n".encode())
    text = b""
    while b"data: " not in text:
        text += sock.recv(65536)
    assert b"text/event-stream" in text
    return sock


@needs_users
def test_more_streams_than_slots_leave_the_server_free(site: Running):
    visitor = signed_in(site, OWNER)
    streams = [_opened(visitor, "/live/my-jobs") for _ in range(dispatch.MOST_ALONE + 8)]
    try:
        assert visitor.get("/jobs").status == 200
    finally:
        for stream in streams:
            stream.close()


@needs_users
def test_streams_end_whole_when_the_server_stops(sqlite_path: Path):
    with made_up_site(sqlite_path, measured=False) as site:
        stream = _opened(signed_in(site, OWNER), "/live/overview")
    rest = b""
    while piece := stream.recv(65536):
        rest += piece
    stream.close()
    assert rest.endswith(b"0\r\n\r\n")  # the end of the answer, not a connection that was cut


def test_a_server_that_nobody_looks_at_loads_no_page():
    """Templates, styles and drawings cost memory and time to start; commands and jobs need none of them."""
    code = "import sys, oarlock.server.serve; print([m for m in ('jinja2', 'oarlock.web.pages') if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
