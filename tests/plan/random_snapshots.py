"""Snapshots of every kind, drawn from a source of randomness: hypothesis' own (it shrinks) or a seeded one."""

from random import Random

from hypothesis import strategies as st

from oarlock.lang import where
from oarlock.model.condition import Condition
from oarlock.model.job import JobState, Reservation
from oarlock.model.resource import DEFAULT_ORDER, ResourceOrder, Value
from oarlock.model.snapshot import (
    Choice,
    Dependency,
    PlacedJob,
    Queue,
    ResourceTable,
    Shape,
    Snapshot,
    Usage,
    WaitingJob,
)
from oarlock.model.submission import ALL, BEST, BESTHALF, Level, ResourceGroup
from oarlock.plan.settings import Fairness, PlanSettings, Weights
from tests.plan.drawing import BESTEFFORT, DEFAULT, FAIR, NOW, licences, table
from tests.plan.drawing import shape as drawn_shape
from tests.plan.random_limits import limited

Drawn = tuple[Snapshot, PlanSettings]

LEVELS = ("switch", "network_address", "host", "cpu", "core", "gpu", "resource_id")
CONDITIONS = (
    "mem >= 2", "gpu is not null", "type = 'default'", "type = 'licence'", "switch != 's1'", "network_address <> 'n1'",
    "core in (0, 1, 2)", "mem = resource_id", "not (mem = 1 or gpu = 1)", "1 = 1",
)  # fmt: skip
USUAL = (
    "resource_id=1", "core=2", "core=3", "nodes=1", "nodes=1", "nodes=2", "host=1", "nodes=BEST", "nodes=ALL",
    "nodes=1/core=1", "nodes=1/core=2", "nodes=2/core=1", "nodes=2/resource_id=2", "host=2/core=BEST",
    "switch=1/nodes=1", "switch=1/nodes=2/core=1", "nodes=1/cpu=1", "cpu=1/core=1", "{type = 'licence'}/resource_id=1",
    "nodes=1+{type = 'licence'}/resource_id=1", "nodes=1+nodes=1/core=2+{type = 'licence'}/resource_id=1",
    "core=2+core=1", "{mem >= 1}/nodes=1+core=1", "gpu=1", "nodes=1/gpu=1/core=1",
)  # fmt: skip
ORDERS = (
    DEFAULT_ORDER,
    DEFAULT_ORDER,
    (ResourceOrder("resource_id"),),
    (ResourceOrder("network_address", descending=True), ResourceOrder("core", descending=True)),
    (ResourceOrder("mem", descending=True), ResourceOrder("network_address")),
    (ResourceOrder("core"), ResourceOrder("network_address")),
)
TYPES = (
    (), (), (), (), (), (), (), ("besteffort",), ("besteffort",), ("timesharing",),
    ("timesharing=user,*",), ("timesharing=*,name",),
    ("timesharing=user,job_name",), ("besteffort", "timesharing=*,*"),
)  # fmt: skip


@st.composite
def snapshots(draw: st.DrawFn) -> Drawn:
    """Draw a small snapshot, and settings for it."""
    return small(draw(st.randoms(use_true_random=False)))


def small(r: Random) -> Drawn:
    """Draw at most 24 resources and 8 jobs, of any kind."""
    resources = _resources(r)
    shapes = tuple(_shape(r) for _ in range(r.randint(1, 4)))
    numbers = list(range(1, r.randint(2, 9)))
    running = r.randint(0, len(numbers) - 1)
    placed = _placed(r, resources, numbers[:running])
    waiting = tuple(_waiting(r, job_id, len(shapes), numbers) for job_id in numbers[running:])
    drawn = Snapshot(
        resources=resources,
        queues=_queues(r),
        shapes=shapes,
        waiting=waiting,
        placed=placed,
        usage={"default": Usage(10, 20, {"ada": 7}, {"ada": 9, "bob": 2}, {"default": 4}, {"ada": 5.0, "bob": 1.0})},
    )
    return limited(r, drawn) if r.random() < 0.6 else drawn, _settings(r)


def _settings(r: Random) -> PlanSettings:
    return PlanSettings(
        security_time=r.choice([0, 1, 3]),
        minimum_hole=r.choice([0, 0, 0, 25]),
        order=r.choice(ORDERS),
        always_assigned=r.choice([(), (), ("frontend",), ("licence",)]),
        shared_when_suspended=r.choice([(), ("default",), ("licence", "default")]),
        besteffort_duration=r.choice([2, 30]),
        release_after_error=r.random() < 0.5,
        wake_up=r.random() < 0.5,
        pack=r.random() < 0.3,
        depth=r.choice([None, None, None, 2]),
        weights=Weights(age=r.choice([0, 1]), size=r.choice([-1, 0, 2]), slowdown=r.choice([0, 1]), age_limit=50),
        fairness=Fairness(max_jobs=r.choice([1000, 2]), user_targets={"ada": 10}, project_targets={"p": 5}),
    )


POLICIES = (
    "multifactor",
    "easy+multifactor",
    "fcfs",
    "easy",
    "easy",
    "easy-sjbf",
    "depth-2",
    "depth-2-sjbf",
    "depth-3",
    "conservative",
)


def _queues(r: Random) -> tuple[Queue, ...]:
    policy = r.choice([FAIR, FAIR, FAIR, *POLICIES, "an_unknown_one"])
    other = Queue("other", r.choice([1, 3]), policy, active=r.random() < 0.9)
    usual = r.choice([DEFAULT, DEFAULT, Queue("default", 2, r.choice(POLICIES))])
    return (BESTEFFORT, usual, other)


def _resources(r: Random) -> ResourceTable:
    rows: list[dict[str, Value]] = []
    usual = r.choice([2, 4, 4, 8])
    for number in range(r.randint(1, 5)):
        size = min(usual if r.random() < 0.7 else r.choice([1, 2, 3, 4, 4, 4, 4, 9, 10]), 20 - len(rows))
        rows += [_core(r, number, at) for at in range(size)]
    rows += licences(r.randint(0, 3), mem=r.choice([None, 1, 3]), network_address=r.choice([None, ""]))
    if r.random() < 0.2:
        rows.append({"type": "frontend", "network_address": "front"})
    for row in rows:
        row |= _condition_of_health(r)
    if r.random() < 0.3:
        r.shuffle(rows)
    made = table(*rows)
    return ResourceTable(made.ids, {"host": made.columns["network_address"]} | _complete(made))


def _complete(made: ResourceTable) -> dict[str, tuple[Value, ...]]:
    nothing = (None,) * len(made.ids)
    return dict.fromkeys((*LEVELS[:-1], "mem"), nothing) | made.columns


def _core(r: Random, number: int, at: int) -> dict[str, Value]:
    return {
        "network_address": f"n{number}",
        "switch": r.choice(["s1", f"s{number % 2}", f"s{number % 2}", f"s{number % 2}", None]),
        "cpu": at // 2 if r.random() < 0.9 else None,
        "core": at,
        "gpu": at // 3 if number % 2 and r.random() < 0.8 else None,
        "mem": r.choice([1, number]),
    }


def _condition_of_health(r: Random) -> dict[str, Value]:
    if r.random() < 0.85:
        return {}
    return {
        "state": r.choice(["Alive", "Absent", "Suspected"]),
        "next_state": r.choice(["UnChanged", "UnChanged", "Absent", "Alive"]),
        "cm_availability": r.choice([0, NOW - 5, NOW + 40, NOW + 90, NOW + 90]),
    }


def _shape(r: Random) -> Shape:
    if r.random() < 0.6:
        return drawn_shape(r.choice(USUAL), r.choice([None, None, None, "mem >= 1"]))
    return Shape(tuple(_group(r) for _ in range(r.choice([1, 1, 1, 2, 3]))), _condition(r, 0.2))


def _group(r: Random) -> ResourceGroup:
    names = [name for name in LEVELS if r.random() < 0.2] or [r.choice(LEVELS)]
    return ResourceGroup(tuple(Level(name, _count(r)) for name in names), _condition(r, 0.25))


def _condition(r: Random, share: float) -> Condition | None:
    return where.parse(r.choice(CONDITIONS)) if r.random() < share else None


def _count(r: Random) -> int:
    return r.choice([1, 1, 1, 1, 2, 2, 3, ALL, BEST, BESTHALF])


def _placed(r: Random, resources: ResourceTable, numbers: list[int]) -> tuple[PlacedJob, ...]:
    left = list(resources.ids)
    r.shuffle(left)
    made = []
    for job_id in numbers:
        size = r.randint(1, 5)
        mine, left = left[:size], left[size:]
        made.append(_placed_one(r, job_id, (*mine, 99) if r.random() < 0.1 else tuple(mine)))
    return tuple(made)


def _placed_one(r: Random, job_id: int, resources: tuple[int, ...]) -> PlacedJob:
    accepted = r.random() < 0.25
    start = NOW + r.choice([-10, 0, 5, 20, 60]) if accepted else NOW - r.randint(1, 90)
    running = (JobState.RUNNING, JobState.RUNNING, JobState.SUSPENDED, JobState.FINISHING, JobState.LAUNCHING)
    return PlacedJob(
        job_id=job_id,
        moldable_id=job_id * 10,
        user=r.choice(["ada", "bob"]),
        queue="default",
        name=r.choice([None, "sim"]),
        state=JobState.WAITING if accepted else r.choice(running),
        reservation=Reservation.SCHEDULED if accepted else Reservation.NONE,
        start=start,
        stop=max(start + 1, start + r.choice([5, 30, 60, 100]), NOW - 5),
        resources=resources,
        types=r.choice(TYPES),
    )


def _waiting(r: Random, job_id: int, shapes: int, numbers: list[int]) -> WaitingJob:
    dated = r.random() < 0.15
    types = r.choice(TYPES)
    choices = tuple(
        Choice(job_id * 10 + at, r.randrange(shapes), r.choice([1, 10, 25, 60])) for at in range(r.choice([1, 1, 2]))
    )
    return WaitingJob(
        job_id=job_id,
        user=r.choice(["ada", "bob"]),
        queue="besteffort" if "besteffort" in types else r.choice([*["default"] * 12, *["other"] * 5, "gone"]),
        choices=choices,
        project=r.choice(["default", "p"]),
        name=r.choice([None, "sim"]),
        submitted=NOW - r.choice([0, 10, 30, 90]),
        types=types if r.random() < 0.97 else ("timesharing=odd",),
        reservation=Reservation.TO_SCHEDULE if dated else Reservation.NONE,
        start=NOW + r.choice([-100, -5, 0, 0, 10, 30]) if dated else 0,
        after=_dependencies(r, job_id, numbers),
    )


def _dependencies(r: Random, job_id: int, numbers: list[int]) -> tuple[Dependency, ...]:
    if r.random() < 0.8:
        return ()
    live = (JobState.WAITING, JobState.RUNNING)
    over = (Dependency(999, JobState.TERMINATED, r.choice([0, 256])), Dependency(998, JobState.ERROR))
    others = [other for other in numbers if other != job_id] or [997]
    return (Dependency(r.choice(others), r.choice(live)), r.choice(over))[r.choice([0, 1]) :][: r.choice([1, 2])]


MEDIUM = {
    "4 cores": [4] * 80,
    "8 cores": [8] * 40,
    "16 cores": [16] * 24,
    "32 cores": [32] * 12,
    "64 cores": [64] * 8,
    "odd sizes": [12, 20, 24, 16] * 6,
    "two fat nodes": [8] * 40 + [50, 64],
    "interleaved": [8] * 40,
}
"""Clusters of 320 to 640 resources, as the sizes of their nodes."""

MEDIUM_ASKS = (
    "nodes={k}", "nodes={k}", "nodes={k}/core={q}", "nodes={k}/core={q}", "core={q}", "switch=1/nodes={k}",
    "switch=1/nodes={k}/cpu=1/core=1", "switch=2/nodes=1/cpu=1", "{{mem = 2}}/nodes={k}", "nodes={k}/cpu=BEST",
    "nodes={k}/core={q}+{{type = 'licence'}}/resource_id=1", "{{mem = 1}}/nodes=1+nodes={k}/core=1",
    "{{core < 3}}/nodes={k}/core=1",
)  # fmt: skip


def medium(r: Random, build: str) -> Drawn:
    """Draw a cluster with a few hundred resources and several dozen jobs, nearly full."""
    resources = _racks(r, MEDIUM[build])
    busy = [at for at in resources.ids if r.random() < 0.9]
    placed = tuple(_ordinary(r, at, busy[at * 9 : at * 9 + 9]) for at in range(1, len(busy) // 9))
    shapes = tuple(_medium_shape(r) for _ in range(20))
    waiting = tuple(
        WaitingJob(
            job_id=1000 + at,
            user="ada",
            queue="default",
            choices=(Choice(at, r.randrange(20), r.choice([60, 300, 600, r.randint(1, 900)])),),
            types=("timesharing",) if r.random() < 0.1 else (),
        )
        for at in range(25)
    )
    order = (ResourceOrder("core"), ResourceOrder("network_address")) if build == "interleaved" else DEFAULT_ORDER
    drawn = Snapshot(resources=resources, queues=(DEFAULT,), shapes=shapes, waiting=waiting, placed=placed)
    return drawn, PlanSettings(order=order)


def _racks(r: Random, sizes: list[int]) -> ResourceTable:
    rows: list[dict[str, Value]] = [
        {"network_address": f"n{at:02d}", "switch": f"s{at // 8}", "cpu": core // 4, "core": core, "mem": at % 2 + 1}
        for at, size in enumerate(sizes)
        for core in range(size)
    ]
    for row in rows:
        row |= {"state": "Suspected"} if r.random() < 0.01 else {}
    return table(*rows, *licences(4))


def _ordinary(r: Random, job_id: int, resources: list[int]) -> PlacedJob:
    return PlacedJob(
        job_id=job_id,
        moldable_id=job_id,
        user="bob",
        queue="default",
        state=JobState.RUNNING,
        start=NOW - 100,
        stop=NOW + r.choice([10, 60, 300, 500]),
        resources=tuple(resources),
        types=("besteffort",) if r.random() < 0.1 else (),
    )


def _medium_shape(r: Random) -> Shape:
    return drawn_shape(r.choice(MEDIUM_ASKS).format(k=r.choice([1, 2, 3, 6]), q=r.choice([1, 2, 4, 7])))
