"""Plan beside a cluster that OAR or Slurm runs: what it did is copied, and then replayed under policies of ours.

Nothing there is changed. Each look is a snapshot, which may be recorded; a recording is played back without waiting.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from oarlock.job.cluster_copy import ClusterCopy
from oarlock.model.errors import BadRequest
from oarlock.model.source import ClusterSource, SourceAway, SourceJob, SourceNodes
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import cluster_copy

ReportProgress = Callable[[str], None]
_AT_ONCE = 1000


class ClusterLook(Struct, frozen=True):
    """What a cluster was at one instant, and which jobs ended since the last look."""

    at: int
    nodes: SourceNodes
    live: list[SourceJob]
    ended: list[SourceJob]
    cursor: tuple[int, int]


def take_snapshot(source: ClusterSource, cursor: tuple[int, int], *, at: int, since: int) -> ClusterLook:
    """Ask a source for everything; `SourceAway` if it does not answer."""
    nodes, live = source.nodes(since=since), list(source.live())
    ended: list[SourceJob] = []
    complete = False
    while not complete:
        answer = source.ended(cursor, _AT_ONCE)
        ended += answer.jobs
        cursor, complete = answer.cursor, answer.complete
    return ClusterLook(at, nodes, live, ended, cursor)


def watch(
    source: ClusterSource,
    *,
    period: int,
    until: int,
    record: Path | None,
    say: ReportProgress,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[ClusterLook]:
    """Yield a snapshot every so many seconds until an instant; one that fails is left out, with a word."""
    began = now = int(clock())
    cursor = (began, 0)
    while True:
        try:
            seen = take_snapshot(source, cursor, at=now, since=began)
        except SourceAway as away:
            say(str(away))
        else:
            cursor = seen.cursor
            if record is not None:
                with record.open("ab") as file:
                    file.write(written(seen))
            yield seen
        if now + period > until:
            return
        sleep(max(now + period - clock(), 0))
        now = int(clock())


def play(file: Path) -> Iterator[ClusterLook]:
    """Yield the snapshots of a recording. A last line that was cut off is left out; any other is refused."""
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                seen = msgspec.json.decode(line, type=ClusterLook, dec_hook=_decode)
            except msgspec.DecodeError as error:
                if not line.endswith(b"\n"):
                    return
                raise BadRequest(
                    f"Line {number} of {file} is no snapshot: {error}.", hint="Name a file that `--record` wrote."
                ) from error
            yield seen


def follow(database: Database, snapshots: Iterator[ClusterLook]) -> tuple[int, int]:
    """Copy what snapshots show into a database; return when the first and the last were taken."""
    copy = ClusterCopy()
    first = last = 0
    for seen in snapshots:
        first, last = first or seen.at, seen.at

        def write(tx: Tx, seen: ClusterLook = seen) -> None:
            copy.take_nodes(tx, _with_kinds(seen.nodes))
            gone = copy.take_live(tx, seen.live) - {job.id for job in seen.ended}
            copy.take_ended(tx, seen.ended, seen.cursor, now=seen.at)
            copy.take_gone(tx, gone, [], now=seen.at)

        database.write(write)
    if not first:
        raise BadRequest("Nothing was seen of the cluster.", hint="Does its database answer?")
    database.write(lambda tx: cluster_copy.end_running(tx, now=last))
    return first, last


def written(seen: ClusterLook) -> bytes:
    """Return a snapshot as a line of a recording; the types of properties are known from their values."""
    plain = msgspec.structs.replace(seen, nodes=msgspec.structs.replace(seen.nodes, kinds={}))
    return msgspec.json.encode(plain) + b"\n"


def _with_kinds(nodes: SourceNodes) -> SourceNodes:
    """Return nodes with the type of each property; a recording has the values alone."""
    if nodes.kinds or not nodes.resources:
        return nodes
    kinds: dict[str, type] = {}
    for row in nodes.resources:
        for name, value in row.values.items():
            if isinstance(value, str) or name not in kinds:
                kinds[name] = str if isinstance(value, str) else int
    return msgspec.structs.replace(nodes, kinds=kinds)


def _decode(wanted: type, value: object) -> object:
    raise NotImplementedError(f"{wanted} is not in a recording: {value!r}")
