"""Pages that stay up to date: what those who look at them cost the server, and how soon they see a change."""

import pwd
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles

from bench.harness import figure
from bench.pages import NOW, site
from oarlock.model.event import Event, EventType
from oarlock.store.queries.cluster import events
from tests.web.nodeless_server import Running

_SECONDS = 15
_CHANGES_A_SECOND = 10
_CHANGES_SEEN = 12
_PATIENCE = 30  # seconds for one change; what takes longer is no figure but a fault
_USERS = 15

# Connects as several users in turn, opens both streams of the overview for each viewer, and reads what comes.
_READER = """
import os, selectors, socket, sys
path, viewers, users = sys.argv[1], int(sys.argv[2]), [int(uid) for uid in sys.argv[3].split(",")]
ready = selectors.DefaultSelector()
for viewer in range(viewers):
    os.seteuid(users[viewer % len(users)])
    for page in ("/live/overview", "/live/my-jobs"):
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(path)
        sock.sendall(f"GET {page} HTTP/1.1\\r\\nHost: x\\r\\nAccept-Encoding: gzip\\r\\n\\r\\n".encode())
        ready.register(sock, selectors.EVENT_READ)
    os.seteuid(0)
begun = set()
while True:
    for key, _ in ready.select():
        text = key.fileobj.recv(1 << 20)
        if not text or (key.fd not in begun and b"text/event-stream" not in text):
            sys.exit(f"one of {len(ready.get_map())} streams got: {text[:300]}")
        begun.add(key.fd)
    if len(begun) == 2 * viewers:
        begun.add(-1)
        print("all", flush=True)
"""


@figure("viewers.50", unit="% of a core", target=5)
def fifty() -> float:
    """Keep the overview of 50 viewers up to date while the cluster changes all the time."""
    return _cost_of(50)


@figure("viewers.500", unit="% of a core", target=25)
def five_hundred() -> float:
    """Keep the overview of 500 viewers up to date while the cluster changes all the time."""
    return _cost_of(500)


@figure("viewers.change", unit="s", target=1)
def change() -> float:
    """Wait until a change is on a screen beside 50 viewers; nine of ten come sooner."""
    with _served() as api, looking(api.socket, 50), api.connect() as stream:
        stream.settimeout(_PATIENCE)
        stream.sendall(b"GET /live/overview HTTP/1.1\r\nHost: x\r\n\r\n")
        _await(stream, b"data: ")
        return quantiles([_seconds_to_see(api, stream, number) for number in range(_CHANGES_SEEN)], n=10)[-1]


def _seconds_to_see(api: Running, stream: socket.socket, number: int) -> float:
    """Let something happen to a node, at some moment between two events, and wait until the page has its name."""
    time.sleep(random.uniform(1.0, 3.0))
    name = f"bench-{number:02}"
    begin = time.monotonic()
    api.core.database.write(lambda tx: events.add(tx, [Event(EventType.LOG_SUSPECTED, NOW, "bench", None, (name,))]))
    api.core.changes += 1
    _await(stream, name.encode())
    return time.monotonic() - begin


def _await(stream: socket.socket, words: bytes) -> None:
    text = b""
    while words not in text:
        if not (piece := stream.recv(1 << 20)):
            raise ConnectionError("the stream ended")
        text = text[-len(words) :] + piece


def _cost_of(viewers: int) -> float:
    """Return the CPU time of this process, in which the server runs, while so many look and much changes."""
    with _served() as api, looking(api.socket, viewers):
        time.sleep(2)
        before, begin = time.process_time(), time.monotonic()
        while time.monotonic() < begin + _SECONDS:
            api.core.changes += 1
            time.sleep(1 / _CHANGES_A_SECOND)
        return 100 * (time.process_time() - before) / (time.monotonic() - begin)


@contextmanager
def _served() -> Iterator[Running]:
    with tempfile.TemporaryDirectory(prefix="oarlock-bench-") as folder, site(Path(folder), past=0) as api:
        yield api


@contextmanager
def looking(path: Path, viewers: int) -> Iterator[None]:
    """Let so many look, from a process of their own, once each has seen something."""
    users = [str(user.pw_uid) for user in pwd.getpwall() if user.pw_uid][:_USERS]
    arguments = [sys.executable, "-ISc", _READER, str(path), str(viewers), ",".join(users)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as reader:
        try:
            if reader.stdout is None or not reader.stdout.readline():
                raise ConnectionError("the viewers could not look")
            yield
            if reader.poll() is not None:
                raise ConnectionError("the viewers lost their streams")
        finally:
            reader.kill()
