"""What the collector costs beside a server: virtual nodes that send as real ones do, for figures and long tests."""

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.harness import figure, workspace
from oarlock.lang import request as requests
from oarlock.measure.live import LiveUsage
from oarlock.model.job import Job, JobState
from oarlock.node.measure.wire import SampleEncoder
from oarlock.server.collecting.bookkeeping import EnergyBooker
from oarlock.server.collecting.client import CollectorClient
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.job import new_jobs

PERIOD = 10.0
CORES = 4
_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class VirtualNode:
    """A node with jobs that each hold a core; half of its values are the node's, the others its jobs'."""

    name: str
    number: int
    jobs: tuple[int, ...]
    values: int
    encoder: SampleEncoder = field(init=False)
    sent: list[int] = field(default_factory=list)
    """The instants of its samples, in milliseconds."""

    def __post_init__(self) -> None:
        self.encoder = SampleEncoder(f"{self.number + 1:032x}")

    def frame(self, at: float) -> bytes:
        """Take a sample."""
        count = len(self.sent)
        half = self.values // 2 // max(len(self.jobs), 1)
        meters = {'power_watts{meter="ipmi"}': 100.0 + count % 7}
        cores = {f'core_cpu_seconds_total{{core="{core}",mode="user"}}': float(count) for core in range(CORES)}
        filling = {
            f'filesystem_free_bytes{{mount="/{n}"}}': float(count + n) for n in range(self.values // 2 - CORES - 1)
        }
        job = {"cpus": 1.0, "cpu_seconds_total": count * 5.0}
        job |= {f'threads{{executable="/bin/{n}"}}': float(count % 9 + n) for n in range(half - len(job))}
        self.sent.append(int(at * 1000))
        return self.encoder.encode(at, {**meters, **cores, **filling}, dict.fromkeys(self.jobs, job))


class VirtualCluster:
    """Nodes, and the part of a server that takes their samples: the last one of each, and the collector's client."""

    def __init__(
        self,
        root: Path,
        database: Database,
        nodes: list[VirtualNode],
        *,
        booking_seconds: float = 60.0,
        look_seconds: float = 10.0,
    ) -> None:
        self.nodes = nodes
        add_jobs(database, nodes)
        self.live = LiveUsage(PERIOD)
        self.booker = EnergyBooker(database)
        self.client = CollectorClient(
            root, database.address, lambda node: self.live.decoder(node).tables_frame(),
            look_seconds=look_seconds, booking_seconds=booking_seconds,
            on_booked=self.booker.take, booked=self.booker.booked,
        )  # fmt: skip

    def send(self, node: VirtualNode, at: float) -> float:
        """Send a sample of a node; return the CPU seconds of the server's part."""
        data, jobs = node.frame(at), set(node.jobs)
        begin = time.thread_time()
        self.client.put(node.name, data, jobs, at=at)
        self.live.take(node.name, data, jobs, at=at)
        return time.thread_time() - begin

    async def settled(self) -> None:
        """Wait until the collector took all that was sent."""
        async with asyncio.timeout(120):
            while self.client._queue or self.client._sent:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    @property
    def pid(self) -> int:
        """The collector's process; 0 while there is none."""
        handle = self.client._handle
        return 0 if handle is None else handle.process.pid


def make_nodes(count: int, *, values: int = 200, jobs_a_node: int = 2) -> list[VirtualNode]:
    """Make nodes with jobs of their own, numbered from 1."""
    return [
        VirtualNode(f"n{node}", node, tuple(range(node * jobs_a_node + 1, (node + 1) * jobs_a_node + 1)), values)
        for node in range(count)
    ]


def add_jobs(database: Database, nodes: list[VirtualNode]) -> None:
    """Add the jobs of the nodes, in their order: those that the database lacks would be taken for ended ones."""
    job = Job(id=0, state=JobState.RUNNING, user="ada", queue="default", directory="/", command="true", submitted=1)
    count = sum(len(node.jobs) for node in nodes)
    request = requests.parse(["/core=1,walltime=1"])
    new = [new_jobs.NewJob(job, request) for _ in range(count)]
    database.write(lambda tx: new_jobs.add(tx, new))


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def resident_bytes(pid: int) -> int:
    """Return the memory that a process has of its own and shares."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE


def turns(nodes: list[VirtualNode], seconds: float) -> Iterator[tuple[float, list[VirtualNode]]]:
    """Yield who sends in each tenth of a second, so that all send once a period."""
    share = max(1, round(len(nodes) / PERIOD / 10))
    groups = [nodes[at : at + share] for at in range(0, len(nodes), share)]
    for turn in range(int(seconds * 10)):
        yield turn / 10, groups[turn % len(groups)]


async def _load(folder: Path, seconds: float) -> tuple[float, float]:
    """Send 20,000 values a second; return the parts of a core that the collector and the server's part take."""
    with open_database(folder / "oarlock.db", create=True) as database:
        cluster = VirtualCluster(folder / "samples", database, make_nodes(1000))
        for node in cluster.nodes:  # names are sent once: that is not what is measured
            cluster.send(node, time.time())
        await cluster.settled()
        begun, before, own = time.monotonic(), cpu_of(cluster.pid), time.process_time()
        made = 0.0
        for at, group in turns(cluster.nodes, seconds):
            begin = time.thread_time()
            server = sum(cluster.send(node, time.time()) for node in group)
            made += time.thread_time() - begin - server  # what the virtual nodes themselves cost
            await asyncio.sleep(max(0.0, begun + at + 0.1 - time.monotonic()))
        await cluster.settled()
        elapsed = time.monotonic() - begun
        result = (cpu_of(cluster.pid) - before) / elapsed, (time.process_time() - own - made) / elapsed
        await cluster.client.close()
        return result


@figure("collect.load", unit="% of a core", target=5)
def load() -> float:
    """Collect 20,000 values a second of 1,000 nodes with two jobs each: the collector's part of a core."""
    with workspace() as folder:
        return asyncio.run(_load(folder, 20.0))[0] * 100


@figure("collect.server", unit="% of a core", target=3)
def server() -> float:
    """The same: what it takes of the server's own core to hand it over and to keep the last sample."""
    with workspace() as folder:
        return asyncio.run(_load(folder, 20.0))[1] * 100


@figure("collect.memory", unit="MB", target=150)
def memory() -> float:
    """Keep 4,000 logs open to rows, with curves as long as they get: the memory of the collector's process."""

    async def resident_after_load(folder: Path) -> int:
        with open_database(folder / "oarlock.db", create=True) as database:
            cluster = VirtualCluster(folder / "samples", database, make_nodes(1000, jobs_a_node=3))
            for turn in range(40):
                for node in cluster.nodes:
                    cluster.send(node, time.time() + turn * PERIOD)
                await cluster.settled()
            size = resident_bytes(cluster.pid)
            await cluster.client.close()
            return size

    with workspace() as folder:
        return asyncio.run(resident_after_load(folder)) / 1e6
