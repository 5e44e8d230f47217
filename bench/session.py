"""Interactive jobs: how long a user waits for the prompt once the job runs, and how fast output travels."""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench import door
from bench.harness import figure
from bench.life import new_site
from oarlock.client import Client
from oarlock.node.wire.stream import (
    CONTROL,
    DATA,
    EXIT,
    LENGTH_BYTES,
    ResumableReceiver,
    StreamMessage,
    decode_length,
    encode_frame,
)
from oarlock.store.engine.database import Database
from oarlock.store.queries.job import attempts

_TIMES = 9
_MEGABYTES = 64


@figure("life.prompt", unit="ms", target=300)
def prompt() -> float:
    """Measure the time from an interactive job's start on its node to the first byte of its shell at the client."""
    with _serving() as (database, way_in, user):
        return statistics.median([_first_prompt(database, way_in, user) for _ in range(_TIMES + 1)][1:])


@figure("session.output", unit="MB/s", target=20, better="higher")
def output() -> float:
    """Measure how fast the output of a command on a node reaches its client, as a terminal would read it."""
    with _serving() as (_, way_in, user), door.seen_as(user):
        job = _submit(way_in, interactive=False)
        command = f"head -c {_MEGABYTES}000000 /dev/zero"
        while (ran := _session(way_in, {"job": job, "command": command}, lambda _: None)) is None:
            time.sleep(0.01)  # the job does not run yet
        return _MEGABYTES / ran


@contextmanager
def _serving() -> Iterator[tuple[Database, Path, str]]:
    with (
        new_site() as (database, state, user),
        door.serving(state, {"NODE_TRANSPORT": "local", "LOG_LEVEL": 1}) as server,
    ):
        yield database, door.appeared(state / "server.sock", server), user


def _submit(way_in: Path, *, interactive: bool) -> int:
    body = {"resources": ["/resource_id=1,walltime=1"], "directory": str(way_in.parent / "home")}
    runs = {"interactive": True} if interactive else {"command": "sleep 600"}
    return int(Client(str(way_in)).submit({**body, **runs})["job_ids"][0])


def _first_prompt(database: Database, way_in: Path, user: str) -> float:
    """Return the milliseconds until something was shown; the shell ends with its terminal."""
    shown: list[float] = []
    with door.seen_as(user):
        job = _submit(way_in, interactive=True)
        _session(way_in, {"job": job, "main": True, "terminal": [24, 80]}, lambda _: shown.append(time.time()))
    with database.read() as tx:
        [attempt] = attempts.of_jobs(tx, [job])
    return 1000 * shown[0] - (attempt.started_us or 0) / 1000


def _session(way_in: Path, request: dict[str, object], on_output: Callable[[StreamMessage], None]) -> float | None:
    """Run a session to its end, or (with a terminal) to its first output; return the seconds, None if refused."""
    connection, rest = Client(str(way_in)).session()
    receiver, received = ResumableReceiver(), bytearray(rest)
    try:
        connection.sendall(encode_frame(CONTROL + json.dumps({**request, "session": os.urandom(16).hex()}).encode()))
        began = time.perf_counter()
        while True:
            received += connection.recv(1 << 16)
            for frame in _frames(received):
                if frame[:1] == CONTROL and b'"refused"' in frame:
                    return None
                for message in receiver.feed(frame[1:]) if frame[:1] == DATA else ():
                    on_output(message)
                    if message.kind == EXIT or "terminal" in request:
                        return time.perf_counter() - began
            if acknowledgement := receiver.acknowledge():
                connection.sendall(encode_frame(acknowledgement))
    finally:
        connection.close()


def _frames(received: bytearray) -> Iterator[bytes]:
    while len(received) >= LENGTH_BYTES:
        end = LENGTH_BYTES + decode_length(bytes(received[:LENGTH_BYTES]))
        if len(received) < end:
            return
        yield bytes(received[LENGTH_BYTES:end])
        del received[:end]
