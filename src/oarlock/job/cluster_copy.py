"""Keep the copy of another cluster up to date: what its source says is compared with what was written last.

Only what changed is written, so that a cluster with ten thousand jobs of which ten change costs ten rewritten rows.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b

import msgspec
from msgspec.structs import replace

from oarlock.model.job import FINAL, HOLDS_RESOURCES
from oarlock.model.resource import DEFAULT_TYPE, Value
from oarlock.model.source import (
    NodeChange,
    SourceEvent,
    SourceJob,
    SourceNode,
    SourceNodes,
    SourceResource,
    StateChange,
)
from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import cluster_copy

_CURSOR = "source cursor"
_SETTLING = 60
"""Seconds in which a job may still appear whose end lies before that of one already there: a resource manager notes the
instant first, and commits later."""
_FOREVER = 1 << 62
_REMEMBERED = 64  # jobs on one core
_NODE_KINDS: dict[str, type] = {
    "type": str, "network_address": str, "state": str, "drain": str, "cpuset": str, "core": int,
}  # fmt: skip


class SeatTable:
    """Which cores of its nodes a job is drawn on, for sources that only know how many they are.

    A job gets cores that nobody else had meanwhile, as far as there are any, and keeps them.
    """

    def __init__(self) -> None:
        self._cores: dict[str, list[int]] = {}
        self._taken: defaultdict[int, dict[int, tuple[int, int]]] = defaultdict(dict)  # by core, then by job
        self._seats: dict[int, tuple[int, ...]] = {}

    def take_cores(self, numbers: Mapping[tuple[str, str], int]) -> None:
        """Take the cores of all nodes, by node and CPU."""
        cores: dict[str, list[tuple[int, int]]] = {}
        for (node, cpu), number in numbers.items():
            cores.setdefault(node, []).append((int(cpu) if cpu.isdigit() else 0, number))
        self._cores = {node: [number for _, number in sorted(rows)] for node, rows in cores.items()}

    def restore(self, held: Mapping[int, Sequence[int]]) -> None:
        """Take the seats that jobs had before a restart."""
        for job, numbers in held.items():
            self._keep(job, tuple(numbers), (0, _FOREVER))

    def seat(self, job: SourceJob) -> SourceJob:
        """Return a job with resources in place of counts."""
        if not job.places or not (job.state in HOLDS_RESOURCES or job.start):
            return job
        over = job.state in FINAL
        stay = (job.start, job.stop if over else _FOREVER)
        seats = self._seats.get(job.id)
        if seats is None or len(seats) != sum(count for _, count in job.places):
            seats = tuple(number for node, count in job.places for number in self._choose(node, count, stay))
        self._keep(job.id, seats, stay)
        if over:
            del self._seats[job.id]
        return replace(job, resources=seats)

    def _keep(self, job: int, seats: tuple[int, ...], stay: tuple[int, int]) -> None:
        self._seats[job] = seats
        for number in seats:
            taken = self._taken[number]
            taken[job] = stay
            if len(taken) > _REMEMBERED:
                del taken[min(taken, key=lambda job: taken[job][1])]

    def _choose(self, node: str, count: int, stay: tuple[int, int]) -> list[int]:
        start, stop = stay

        def neighbours(number: int) -> int:
            return sum(begun < stop and start < end for begun, end in self._taken[number].values())

        return sorted(self._cores.get(node, []), key=neighbours)[:count]


class ClusterCopy:
    """What was written last of one source. Its methods run in a transaction of the writer, one after the other."""

    def __init__(self) -> None:
        self._jobs: dict[int, bytes] = {}
        self._ended: dict[int, tuple[int, bytes]] = {}  # lately, with the instant: they are read more than once
        self._nodes = b""
        self._seats = SeatTable()

    def restore(self, tx: Tx) -> None:
        """Take up the copy where an earlier process left it."""
        self._seats.take_cores(cluster_copy.numbered(tx))
        self._seats.restore(cluster_copy.held_by_live(tx))

    def cursor(self, tx: Tx, since: int) -> tuple[int, int]:
        """Return behind which instant and number jobs that ended are not copied yet."""
        at, _, number = (facts.get(tx, _CURSOR) or f"{since} 0").partition(" ")
        return int(at), int(number)

    def take_nodes(self, tx: Tx, answer: SourceNodes) -> list[str]:
        """Write what the cluster has, if it changed; return properties that could not be copied."""
        print_ = _fingerprint(
            [
                answer.resources,
                answer.nodes,
                answer.queues,
                answer.changes,
                answer.node_changes,
                sorted(map(str, answer.kinds)),
            ]
        )
        if print_ == self._nodes:
            return []
        rows, kinds = answer.resources, dict(answer.kinds)
        if answer.nodes:
            rows, kinds = _numbered(tx, answer.nodes)
        refused = cluster_copy.write_resources(tx, rows, kinds)
        cluster_copy.write_queues(tx, answer.queues)
        cluster_copy.write_changes(tx, [*answer.changes, *_of_cores(rows, answer.node_changes)])
        self._seats.take_cores(cluster_copy.numbered(tx))
        self._nodes = print_
        return refused

    def take_live(self, tx: Tx, answer: Sequence[SourceJob]) -> set[int]:
        """Write the jobs that live; return those of the copy that the source no longer has among them."""
        self._write(tx, answer)
        return cluster_copy.live_numbers(tx) - {job.id for job in answer}

    def take_gone(self, tx: Tx, wanted: Collection[int], answer: Sequence[SourceJob], *, now: int) -> None:
        """Write jobs that do not live any more; those that the source does not know at all are marked as over."""
        self._write(tx, answer)
        cluster_copy.mark_vanished(tx, set(wanted) - {job.id for job in answer}, now=now)

    def take_ended(self, tx: Tx, answer: Sequence[SourceJob], cursor: tuple[int, int], *, now: int) -> None:
        """Write jobs that ended, and how far the copy has come."""
        self._write(tx, answer)
        settled = now - _SETTLING
        self._ended = {job: entry for job, entry in self._ended.items() if entry[0] >= settled}
        self._ended |= {job.id: (max(cursor[0], job.stop), _fingerprint(job)) for job in answer if job.state in FINAL}
        at, number = cursor if cursor[0] < settled else (settled, 0)
        facts.put(tx, _CURSOR, f"{at} {number}")

    def take_events(self, tx: Tx, answer: Sequence[SourceEvent]) -> None:
        """Add events that are not copied yet."""
        last = cluster_copy.last_event(tx)
        cluster_copy.write_events(tx, [row for row in answer if row.id > last])

    def _write(self, tx: Tx, answer: Iterable[SourceJob]) -> None:
        changed = []
        for job in sorted(answer, key=lambda job: (job.start, job.id)):
            print_ = _fingerprint(job)
            if print_ in {self._jobs.get(job.id), self._ended.get(job.id, (0, b""))[1]}:
                continue
            changed.append(self._seats.seat(job))
            if job.state in FINAL:
                self._jobs.pop(job.id, None)
            else:
                self._jobs[job.id] = print_
        cluster_copy.write_jobs(tx, changed)

    def forget(self) -> None:
        """Write everything again next time: the last transaction failed."""
        self._jobs, self._ended, self._nodes = {}, {}, b""


def _of_cores(rows: Sequence[SourceResource], changes: Sequence[NodeChange]) -> list[StateChange]:
    """Return the changes of the cores of nodes, numbered from 1."""
    cores: defaultdict[str, list[int]] = defaultdict(list)
    for row in rows:
        cores[str(row.values.get("network_address"))].append(row.id)
    of_cores = ((number, change) for change in changes for number in cores[change.node])
    return [
        StateChange(at, number, change.state, change.start, change.stop)
        for at, (number, change) in enumerate(of_cores, 1)
    ]


def _fingerprint(value: object) -> bytes:
    return blake2b(msgspec.msgpack.encode(value), digest_size=12).digest()


def _numbered(tx: Tx, nodes: Sequence[SourceNode]) -> tuple[list[SourceResource], dict[str, type]]:
    """Number the cores of nodes; those that the copy has keep their numbers."""
    numbers = cluster_copy.numbered(tx)
    following = cluster_copy.highest_resource(tx) + 1
    kinds = dict(_NODE_KINDS)
    rows = []
    for node in nodes:
        kinds |= {name: int if isinstance(value, int) else str for name, value in node.properties.items()}
        for core in range(node.cores):
            number = numbers.get((node.name, str(core)))
            if number is None:
                number, following = following, following + 1
            values: dict[str, Value] = {
                "type": DEFAULT_TYPE, "network_address": node.name, "state": node.state,
                "drain": "YES" if node.drain else "NO", "cpuset": str(core), "core": number, **node.properties,
            }  # fmt: skip
            rows.append(SourceResource(number, values))
    return rows, kinds
