"""Full replay: the jobs of a trace run in a simulated cluster, with the real steps, scheduler, SQL and accounting.

Slower than `replay`, which asks the planner alone, and closer to a server: what a pass decides is written down, checked
again, launched on simulated nodes and reported by them. At one instant jobs end first, then new ones come, then one
decision.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from oarlock.config import Config
from oarlock.job.run.schedule import Decision
from oarlock.model.job import Job, JobState
from oarlock.model.resource import Value
from oarlock.model.snapshot import Queue, ResourceTable
from oarlock.model.submission import Alternative, ResourceRequest
from oarlock.plan.sets.layout import NODE, make_layout
from oarlock.plan.settings import PlanSettings
from oarlock.simulate.cluster import SimulatedCluster
from oarlock.simulate.replay import ReplayedJob
from oarlock.simulate.trace import Trace, TraceJob
from oarlock.store.engine.opening import MemoryDatabase
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import administration, history, new_jobs, properties, resources

_QUEUE = "trace"
_WATCH_SECONDS = 3600
"""Between two looks of the server at what time brings: virtual nodes end their jobs in time."""


def processors(count: int) -> ResourceTable:
    """Return a table of so many identical processors on one large node."""
    alike: dict[str, Value] = {NODE: "machine", "type": "default", "scheduler_priority": 0, "suspended_jobs": "NO"}
    return ResourceTable(tuple(range(1, count + 1)), {name: (value,) * count for name, value in alike.items()})


def replay(
    trace: Trace, site: ResourceTable, policy: str, *, progress: Callable[[int], None] = lambda _over: None
) -> list[ReplayedJob]:
    """Run the jobs of a trace under a policy; return what became of each that ran, in the order of submission.

    Every resource must be on a node (`processors` makes some).
    """
    with MemoryDatabase() as database:
        return _Replay(database, trace, site, policy).run(progress)


class _Replay:
    """One trace in one cluster."""

    def __init__(self, database: MemoryDatabase, trace: Trace, site: ResourceTable, policy: str) -> None:
        self._jobs, self._site = trace.jobs, site
        begin = trace.jobs[0].submitted if trace.jobs else 0
        config = Config(scheduler_job_security_time=0, watch_frequency=_WATCH_SECONDS)
        names = dict.fromkeys(str(name) for name in site.columns[NODE])
        self._cluster = SimulatedCluster(database, list(names), config, begin=begin, decided=self._note)
        self._numbers: dict[int, TraceJob] = {}
        self._predicted: dict[int, int] = {}
        database.write(lambda tx: self._furnish(tx, policy))

    def _furnish(self, tx: Tx, policy: str) -> None:
        administration.add_queue(tx, Queue(_QUEUE, 10, policy))
        existing = properties.types(tx)
        columns = {
            name: _as_here(values, existing.get(name))
            for name, values in self._site.columns.items()
            if name not in resources.KEPT
        }
        for name, values in columns.items():
            if name not in existing:
                properties.add(tx, name, str if any(isinstance(value, str) for value in values) else int)
        rows: list[dict[str, Value]] = [
            {name: values[at] for name, values in columns.items()} for at in range(len(self._site.ids))
        ]
        self._ids = dict(zip(resources.add(tx, rows, at=self._cluster.now), self._site.ids, strict=True))

    def run(self, progress: Callable[[int], None]) -> list[ReplayedJob]:
        cluster, over = self._cluster, 0
        for instant, coming in groupby(self._jobs, key=lambda job: job.submitted):
            cluster.run_to(instant - 1)
            cluster.clock.go_to(instant)
            over += self._arrive(coming)
            cluster.settle()
            progress(over)
        while not cluster.idle:
            cluster.step(cluster.next_event())
        with cluster.database.read() as tx:
            return list(self._ran(history.read_full_history(tx)))

    def _arrive(self, coming: Iterable[TraceJob]) -> int:
        new = list(coming)
        for job, past in zip(self._cluster.submit_jobs([_new(past) for past in new]), new, strict=True):
            self._numbers[job.id] = past
        return len(new)

    def _note(self, decision: Decision) -> None:
        """Record the first start that is predicted for each job."""
        for planned in decision.predictions:
            self._predicted.setdefault(planned.job_id, planned.start)

    def _ran(self, everything: history.FullHistory) -> Iterable[ReplayedJob]:
        layout = make_layout(self._site, PlanSettings().order)
        for number, past in sorted(self._numbers.items()):
            job = everything.jobs[number]
            if job.state is JobState.TERMINATED:
                held = layout.bits_of([self._ids[id_] for id_ in everything.resources[number]])
                yield ReplayedJob(past, job.start, self._predicted.get(number), held)


def _as_here(values: Sequence[Value], kind: type | None) -> Sequence[Value]:
    """Write values as our own columns hold them: OAR keeps the numbers of a cpuset as texts."""
    if kind is not int:
        return values
    return [int(value) if isinstance(value, str) and value.isdecimal() else value for value in values]


def _new(past: TraceJob) -> new_jobs.NewJob:
    job = Job(
        id=0,
        state=JobState.WAITING,
        user=past.user,
        project=past.project,
        queue=_QUEUE,
        submitted=past.submitted,
        command=f"sleep {past.run}",
    )
    alternative = Alternative(past.shape.groups, max(past.walltime, past.run))
    return new_jobs.NewJob(job, ResourceRequest((alternative,), past.shape.where))
