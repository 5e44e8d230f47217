"""How long planning takes: whole passes, single events, and the reasons on top.

Loads as sites have them: a machine that is 95 % busy, 32 cores a node, ten usual walltimes unless said. Every job is
placed exactly; a load that leaves one without a place is a mistake and not measured. CPU time.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from bench.harness import cpu_seconds, figure
from oarlock.lang import request
from oarlock.model.job import JobState
from oarlock.model.resource import Value
from oarlock.model.snapshot import Choice, PlacedJob, Queue, ResourceTable, Shape, Snapshot, WaitingJob
from oarlock.plan.explain import Explainer
from oarlock.plan.incremental.incremental_plan import IncrementalPlan
from oarlock.plan.pass_state import PassState
from oarlock.plan.planner import begin_pass, run_pass
from oarlock.plan.settings import PlanSettings

NOW = 1_000_000
CORES = 32
USUAL_WALLTIMES = (1800, 3600, 7200, 10_800, 14_400, 21_600, 28_800, 43_200, 64_800, 86_400)
_RUNS = 5  # the least of them counts: this is about the program, not about who else was on the machine

Walltime = Callable[[Random], int]
Row = dict[str, Value]


def usual(r: Random) -> int:
    """Draw one of ten walltimes."""
    return r.choice(USUAL_WALLTIMES)


def any_length(r: Random) -> int:
    """Draw a walltime that hardly anybody else has."""
    return r.randint(600, 86_400)


@dataclass(slots=True)
class Load:
    """A cluster and its jobs in the making. `nodes` are the resources of each node."""

    rows: list[Row]
    nodes: list[list[int]]
    random: Random = field(default_factory=lambda: Random(1))
    placed: list[PlacedJob] = field(default_factory=list)
    waiting: list[WaitingJob] = field(default_factory=list)
    shapes: dict[str, int] = field(default_factory=dict)

    def fill(self, walltime: Walltime) -> None:
        """Let jobs on whole nodes run until 95 % of the nodes are busy."""
        r, busy = self.random, list(range(len(self.nodes)))
        r.shuffle(busy)
        del busy[int(len(busy) * 0.95) :]
        while busy:
            count = r.choice([1, 1, 2, 2, 4, 8])
            mine, busy = busy[:count], busy[count:]
            self._run([resource for node in mine for resource in self.nodes[node]], walltime(r))

    def _run(self, resources: list[int], walltime: int) -> None:
        left = self.random.randint(1, walltime)
        number = len(self.placed) + 1
        self.placed.append(
            PlacedJob(
                job_id=number,
                moldable_id=number,
                user="ada",
                queue="default",
                state=JobState.RUNNING,
                start=NOW + left - walltime,
                stop=NOW + left,
                resources=tuple(resources),
            )
        )

    def ask(self, text: str, walltime: int) -> None:
        """Let one job more wait."""
        number = 100_000 + len(self.waiting)
        choice = Choice(number, self.shapes.setdefault(text, len(self.shapes)), walltime)
        self.waiting.append(WaitingJob(job_id=number, user="ada", queue="default", choices=(choice,)))

    def snapshot(self) -> Snapshot:
        """Give what the scheduler sees."""
        names = self.rows[0]
        return Snapshot(
            resources=ResourceTable(
                tuple(range(1, len(self.rows) + 1)), {name: tuple(row[name] for row in self.rows) for name in names}
            ),
            queues=(Queue("default", 2, "oar_sched_gantt_with_timesharing"),),
            shapes=tuple(_shape(text) for text in self.shapes),
            waiting=tuple(self.waiting),
            placed=tuple(self.placed),
        )


def _shape(text: str) -> Shape:
    asked = request.parse([text])
    return Shape(asked.alternatives[0].groups, asked.where)


def _core(node: int, core: int, number: int, **more: Value) -> Row:
    return {
        "network_address": f"node{node:05d}",
        "cpu": node * 4 + core // 16,
        "core": number,
        "type": "default",
        "state": "Alive",
        "next_state": "UnChanged",
        "scheduler_priority": 0,
        "suspended_jobs": "NO",
        **more,
    }


def _cluster(sizes: Sequence[int], more: Callable[[int, int], Row]) -> Load:
    """Make nodes of these sizes; `more` gives further properties of a core of a node."""
    rows: list[Row] = []
    nodes: list[list[int]] = []
    for node, size in enumerate(sizes):
        nodes.append(list(range(len(rows) + 1, len(rows) + size + 1)))
        rows += [_core(node, core, len(rows) + core, **more(node, core)) for core in range(size)]
    return Load(rows, nodes)


def regular(jobs: int, *, parts: float, walltime: Walltime = usual, nodes: int = 320) -> Snapshot:
    """Make nodes of 32 cores; a share of the jobs asks for parts of nodes, the others for whole ones."""
    load = _cluster([CORES] * nodes, lambda _node, _core: {})
    load.fill(walltime)
    r = load.random
    for _ in range(jobs):
        length = walltime(r)
        if parts and r.random() < parts:
            load.ask(f"nodes={r.choice([1, 1, 2, 4, 8])}/core={r.choice([1, 2, 4, 8, 16])}", length)
        else:
            load.ask(f"nodes={r.choice([1, 1, 2, 2, 4, 8, 16])}", length)
    return load.snapshot()


HETERO = (
    "switch=1/nodes={k}/cpu=1/core={q}", "switch=1/nodes={k}/cpu=1/core={q}", "switch=1/nodes={k}",
    "nodes={k}/cpu=1", "nodes={k}/core={q}", "{{kind = 'thin'}}/nodes={k}", "{{mem >= 256}}/nodes=1/core={q}",
    "{{kind <> 'gpu'}}/switch=1/nodes={k}/cpu=1", "{{kind = 'gpu'}}/switch=1/nodes=1/gpu={g}",
    "{{gpu IS NOT NULL}}/nodes=1/gpu={g}",
)  # fmt: skip


def hetero(jobs: int) -> Snapshot:
    """Make 4,096 cores: 96 thin nodes of 16, 64 usual ones of 32, 8 with GPUs of 64; eight nodes to a switch."""
    kinds = ["thin"] * 96 + ["usual"] * 64 + ["gpu"] * 8
    size = {"thin": 16, "usual": 32, "gpu": 64}
    memory = {"thin": 64, "usual": 256, "gpu": 512}

    def more(node: int, core: int) -> Row:
        kind = kinds[node]
        gpu = node * 4 + core // 16 if kind == "gpu" else None
        return {"switch": f"s{node // 8}", "kind": kind, "mem": memory[kind], "gpu": gpu}

    load = _cluster([size[kind] for kind in kinds], more)
    load.fill(usual)
    r = load.random
    for _ in range(jobs):
        text = r.choice(HETERO).format(k=r.choice([1, 1, 2, 4]), q=r.choice([1, 2, 4, 8]), g=r.choice([1, 2, 4]))
        load.ask(text, usual(r))
    return load.snapshot()


def _planned(snapshot: Snapshot) -> PassState:
    """Plan everything; a load of which not every job gets a place is a mistake."""
    state = begin_pass(snapshot, now=NOW, settings=PlanSettings())
    plan = run_pass(state)
    if len(plan.placements) != len(snapshot.waiting):
        raise ValueError(f"only {len(plan.placements)} of {len(snapshot.waiting)} jobs have a place")
    return state


def _seconds(call: Callable[[], object]) -> float:
    before = time.process_time()
    call()
    return time.process_time() - before


def _a_job(snapshot: Snapshot, *, times: int = _RUNS) -> float:
    """Give the microseconds of a pass for each of its jobs, from the snapshot to the plan."""
    return cpu_seconds(lambda: _planned(snapshot), times=times) / len(snapshot.waiting) * 1e6


@figure("plan.whole.10k", unit="µs a job", target=40)
def whole_nodes() -> float:
    """10,000 jobs on whole nodes, 10,240 resources."""
    return _a_job(regular(10_000, parts=0), times=3 * _RUNS)


@figure("plan.mixed.10k", unit="µs a job", target=130)
def mixed() -> float:
    """Six of ten jobs ask for so many cores on so many nodes."""
    return _a_job(regular(10_000, parts=0.6))


@figure("plan.random.10k", unit="µs a job", target=450)
def random_walltimes() -> float:
    """The same, and no walltime twice: nothing that was learnt of one job helps the next."""
    return _a_job(regular(10_000, parts=0.6, walltime=any_length))


@figure("plan.hetero.4k", unit="µs a job", target=300)
def heterogeneous() -> float:
    """5,000 jobs, 4,096 resources, three kinds of nodes, GPUs, four levels, conditions."""
    return _a_job(hetero(5_000))


@figure("plan.mixed.100k", unit="µs a job", target=1000)
def mixed_on_a_large_machine() -> float:
    """The same mix, 102,400 resources."""
    return _a_job(regular(10_000, parts=0.6, nodes=3200), times=3)


@figure("plan.event.10k", unit="ms an event", target=100)
def whole_answers() -> float:
    """10,000 jobs waiting: one submission and everybody's date after it; one early end and who starts. The slower."""
    made, snapshot = _full_machine()
    new = _newcomer(snapshot, 900_000)
    leaver = max(snapshot.placed, key=lambda job: len(job.resources))

    def submitted() -> None:
        made.submitted(new)
        made.refresh()

    def ended() -> None:
        made.advance(NOW + 10)
        made.ended(leaver.job_id)
        _obey(made)

    return max(_seconds(submitted), _seconds(ended)) * 1e3


@figure("plan.incremental", unit="ms an event", target=20)
def single_events() -> float:
    """Who starts now? 10,000 jobs waiting, forty events: early ends and submissions in turn; the mean of an event."""
    made, snapshot = _full_machine()
    r = Random(2)
    leavers = r.sample(snapshot.placed, 20)

    def events() -> None:
        for at, leaver in enumerate(leavers, 1):
            made.advance(NOW + at)
            made.ended(leaver.job_id)
            _obey(made)
            made.submitted(_newcomer(snapshot, 900_000 + at))
            _obey(made)

    return _seconds(events) / (2 * len(leavers)) * 1e3


def _full_machine() -> tuple[IncrementalPlan, Snapshot]:
    """Plan, and let everybody start who can."""
    snapshot = regular(10_000, parts=0.6)
    made = IncrementalPlan(snapshot, now=NOW, settings=PlanSettings())
    made.refresh()
    _obey(made)
    return made, snapshot


def _obey(made: IncrementalPlan) -> None:
    for job_id in made.decide().start:
        made.started(job_id)


def _newcomer(snapshot: Snapshot, number: int) -> WaitingJob:
    choice = snapshot.waiting[number % len(snapshot.waiting)].choices[0]
    return WaitingJob(job_id=number, user="ada", queue="default", choices=(choice,))


@figure("plan.explain", unit="µs a job", target=50)
def reasons() -> float:
    """The reasons and predictions of 10,000 waiting jobs, on top of the plan."""
    snapshot = regular(10_000, parts=0.6)
    state = _planned(snapshot)

    def told() -> None:
        explainer = Explainer(state)
        for job in snapshot.waiting:
            explainer.why(job.job_id)

    return cpu_seconds(told, times=_RUNS) / len(snapshot.waiting) * 1e6
