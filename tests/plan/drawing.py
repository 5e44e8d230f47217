"""How tests of planning draw what they plan: clusters, jobs and sets of units in a few characters.

A dot is a free unit and anything else a taken one, the first character being unit 0:

    free("##..") == 0b1100

A job is written as on the command line: `asks(7, "nodes=2/core=1", walltime=60)`.
"""

from collections.abc import Sequence
from typing import Any

from oarlock.lang import request
from oarlock.model.job import JobState, Reservation
from oarlock.model.plan import Plan
from oarlock.model.resource import DEFAULT_ORDER, ResourceOrder, Value
from oarlock.model.snapshot import Choice, PlacedJob, Queue, ResourceTable, Shape, Snapshot, WaitingJob
from oarlock.plan.fit.fit import Fitter
from oarlock.plan.pass_state import PassState
from oarlock.plan.planner import begin_pass, make_plan, run_pass
from oarlock.plan.sets.layout import ResourceLayout, make_layout
from oarlock.plan.settings import PlanSettings

NOW = 1_000_000
FIFO = "oar_sched_gantt_with_timesharing"
FAIR = "oar_sched_gantt_with_timesharing_and_fairsharing"
DEFAULT = Queue("default", 2, FIFO)
BESTEFFORT = Queue("besteffort", 0, FIFO)


def free(drawn: str) -> int:
    """Read a drawing of units: the free ones."""
    return sum(1 << at for at, unit in enumerate(drawn) if unit == ".")


def table(*rows: dict[str, Value]) -> ResourceTable:
    """Make a table of resources with ids 1, 2, …; what a row does not say is usual, or nothing."""
    usual: dict[str, Value] = {
        "network_address": None,
        "type": "default",
        "state": "Alive",
        "next_state": "UnChanged",
        "scheduler_priority": 0,
        "suspended_jobs": "NO",
        "cm_availability": 0,
    }
    names = dict.fromkeys([*usual, *(name for row in rows for name in row)])
    columns = {name: tuple(row.get(name, usual.get(name)) for row in rows) for name in names}
    return ResourceTable(tuple(range(1, len(rows) + 1)), columns)


def node(name: str, cores: int, **properties: Value) -> list[dict[str, Value]]:
    """Give the resources of a node, to be handed to `table`; two cores are a cpu."""
    return [{"network_address": name, "core": f"{name}.{at}", "cpu": f"{name}.{at // 2}", **properties}
            for at in range(cores)]  # fmt: skip


def licences(count: int, **properties: Value) -> list[dict[str, Value]]:
    """Give resources that no node has."""
    return [{"type": "licence", **properties} for _ in range(count)]


def cluster(nodes: int, cores: int, **properties: Value) -> ResourceTable:
    """Make a cluster of equal nodes n1, n2, … whose resources are numbered one after the other."""
    return table(*(row for at in range(1, nodes + 1) for row in node(f"n{at:02d}", cores, **properties)))


def laid(resources: ResourceTable, order: Sequence[ResourceOrder] = DEFAULT_ORDER) -> ResourceLayout:
    """Lay a table out."""
    return make_layout(resources, order)


def shape(text: str, where: str | None = None) -> Shape:
    """Read what is asked for: `nodes=2/core=1+{type='licence'}/resource_id=1`."""
    asked = request.parse([text], where=where)
    return Shape(asked.alternatives[0].groups, asked.where)


def chosen(resources: ResourceTable, text: str, among: Sequence[int] | None = None) -> list[int]:
    """Give the ids that a request takes when these resources are free (all, if none are named)."""
    layout = laid(resources)
    fitter = Fitter(layout)
    fit = fitter.compile(shape(text))
    room = layout.everything if among is None else layout.bits_of(among)
    taken = fit.take(fitter.whole_nodes(room) if fit.of_nodes else room)
    return sorted(layout.ids_of(taken))


class Asked:
    """A waiting job whose requests are still texts; `snapshot` makes them shapes."""

    def __init__(self, job_id: int, texts: Sequence[str], walltimes: Sequence[int], said: dict[str, Any]) -> None:
        self.job_id, self.texts, self.walltimes, self.said = job_id, texts, walltimes, said

    def waiting(self, shapes: list[Shape]) -> WaitingJob:
        choices = []
        for at, (text, walltime) in enumerate(zip(self.texts, self.walltimes, strict=True)):
            made = shape(text, self.said.get("where"))
            if made not in shapes:
                shapes.append(made)
            choices.append(Choice(self.job_id * 10 + at, shapes.index(made), walltime))
        said = {"user": "ada", "queue": "default"} | {key: value for key, value in self.said.items() if key != "where"}
        return WaitingJob(job_id=self.job_id, choices=tuple(choices), **said)


def asks(job_id: int, *texts: str, walltime: int | Sequence[int] = 100, **said: Any) -> Asked:
    """Draw a waiting job; several texts are alternatives, with a walltime each or one for all."""
    walltimes = [walltime] * len(texts) if isinstance(walltime, int) else walltime
    return Asked(job_id, texts, walltimes, said)


def reserves(job_id: int, text: str, at: int, walltime: int = 100, **said: Any) -> Asked:
    """Draw a new reservation."""
    return asks(job_id, text, walltime=walltime, reservation=Reservation.TO_SCHEDULE, start=at, **said)


def runs(job_id: int, resources: Sequence[int], until: int, **said: Any) -> PlacedJob:
    """Draw a running job; its walltime ends `until`."""
    usual = {"moldable_id": job_id * 10, "user": "ada", "queue": "default", "state": JobState.RUNNING}
    return PlacedJob(job_id=job_id, resources=tuple(resources), stop=until, **(usual | {"start": NOW - 50} | said))


def reserved(job_id: int, resources: Sequence[int], start: int, stop: int, **said: Any) -> PlacedJob:
    """Draw an accepted reservation that did not start yet."""
    return runs(job_id, resources, stop, start=start, state=JobState.WAITING, reservation=Reservation.SCHEDULED, **said)


def snapshot(resources: ResourceTable, *jobs: Asked | PlacedJob, **said: Any) -> Snapshot:
    """Make a snapshot of a cluster and its jobs, with a default and a best-effort queue."""
    shapes: list[Shape] = []
    waiting = [job.waiting(shapes) for job in jobs if isinstance(job, Asked)]
    placed = [job for job in jobs if isinstance(job, PlacedJob)]
    usual = {"queues": (DEFAULT, BESTEFFORT)}
    return Snapshot(
        resources=resources, shapes=tuple(shapes), waiting=tuple(waiting), placed=tuple(placed), **(usual | said)
    )


def finished_pass(shot: Snapshot, settings: PlanSettings) -> PassState:
    """Plan a snapshot at NOW and return the state after it, for questions about the plan."""
    state = begin_pass(shot, now=NOW, settings=settings)
    run_pass(state)
    return state


def planned(
    resources: ResourceTable, *jobs: Asked | PlacedJob, given: dict[str, Any] | None = None, **settings: Any
) -> Plan:
    """Plan jobs on a cluster at NOW, without security time unless it is given; `given`: what else a snapshot has."""
    shot = snapshot(resources, *jobs, **(given or {}))
    return make_plan(shot, now=NOW, settings=PlanSettings(**({"security_time": 0} | settings)))


def places(plan: Plan) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Give when (after NOW) and where each job of a plan goes."""
    return {job: (place.start - NOW, plan.resources(job)) for job, place in plan.placements.items()}


def obstacles(plan: Plan) -> dict[int, str]:
    """Give why the others go nowhere."""
    return {job: str(unplaced.obstacle) for job, unplaced in plan.unplaced.items()}
