"""All charts of a pass: which one a job is looked at in, and who is seen in which."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from oarlock.plan.inputs import NewOccupancy
from oarlock.plan.rules.containers import Containers
from oarlock.plan.rules.timesharing import SharingClass
from oarlock.plan.sets.availability import Availability
from oarlock.plan.timeline.occupancy import FOREVER, Occupancy, Occupation


class OccupancyKind(NamedTuple):
    """What matters of a job for its charts."""

    besteffort: bool = False
    sharing: SharingClass | None = None
    reservation: bool = False  # new, with a date: it may count on resources that are away today
    room: str | None = None  # the container it belongs into
    placeholder: str | None = None  # it keeps its resources for those who are `allowed` by this name
    allowed: str | None = None

    def sees(self, other: "OccupancyKind") -> bool:
        """Say whether a job of the other kind is in this one's way.

        Jobs in different rooms never meet. Best-effort jobs are in nobody's way but each other's; jobs of one
        timesharing class are not in each other's, nor placeholders in that of those they are for.
        """
        if self.room != other.room or (other.besteffort and not self.besteffort):
            return False
        if other.placeholder is not None and other.placeholder == self.allowed:
            return False
        return self.sharing is None or self.sharing != other.sharing


class JobOccupation(Struct, frozen=True, gc=False):
    """A stay and the kind of job it belongs to."""

    kind: OccupancyKind
    occupation: Occupation


class Occupancies:
    """The charts, each made when the first job needs it. `windows` are nobody's stays, which everybody sees."""

    def __init__(
        self,
        new_chart: NewOccupancy,
        available: Availability,
        now: int,
        windows: Sequence[Occupation] = (),
        containers: Containers | None = None,
    ) -> None:
        self.now = now
        self._windows = windows
        self._containers = containers or Containers()
        self.settled: dict[int, JobOccupation] = {}
        self._blank = new_chart
        self._available = available
        self._charts: dict[OccupancyKind, Occupancy] = {}

    def copy(self) -> "Occupancies":
        """Give a board that can be changed apart."""
        twin = Occupancies(self._blank, self._available, self.now, self._windows, self._containers)
        twin.settled = self.settled.copy()
        twin._charts = {kind: chart.copy() for kind, chart in self._charts.items()}
        return twin

    def chart(self, kind: OccupancyKind) -> Occupancy:
        """Give the chart in which a job of this kind is looked at."""
        chart = self._charts.get(kind)
        if chart is None:
            chart = self._charts[kind] = self._new_chart(kind)
        return chart

    def settle(self, job_id: int, kind: OccupancyKind, stay: Occupation, *, found_in: Occupancy | None = None) -> None:
        """Give a job its stay, and show it to every chart that sees it; in the one it was found in it is alone."""
        self.settled[job_id] = JobOccupation(kind, stay)
        for seer, chart in self._charts.items():
            if seer.sees(kind):
                chart.add(job_id, stay, exclusive=chart is found_in)

    def remove(self, job_id: int) -> JobOccupation:
        """Take a job's stay away from every chart."""
        settled = self.settled.pop(job_id)
        for seer, chart in self._charts.items():
            if seer.sees(settled.kind):
                chart.remove(job_id)
        return settled

    def forget_container(self, room: str) -> None:
        """Make the charts of a room anew when they are needed: a container came or went."""
        for kind in [kind for kind in self._charts if kind.room == room]:
            del self._charts[kind]

    def advance(self, now: int) -> None:
        """Let time pass in every chart."""
        self.now = now
        for chart in self._charts.values():
            chart.advance(now)

    def _new_chart(self, kind: OccupancyKind) -> Occupancy:
        usable = self._available.existing if kind.reservation else self._available.plannable
        if kind.room is not None:
            usable &= self._containers.resources(kind.room)
        chart = self._blank(self.now, usable)
        for number, stay in enumerate(self._nobodys(kind), 1):
            chart.add(-number, stay, exclusive=False)
        for job_id, settled in self.settled.items():
            if kind.sees(settled.kind):
                chart.add(job_id, settled.occupation, exclusive=False)
        return chart

    def _nobodys(self, kind: OccupancyKind) -> list[Occupation]:
        """Give when resources are away: windows, and in a room the time before and after its containers."""
        away = list(self._windows)
        if kind.room is not None:
            away += self._containers.shut(kind.room)
        if not kind.reservation:
            # Whoever could be woken is gone again after its date.
            away += [Occupation(until, FOREVER, resources) for until, resources in self._available.asleep]
        return away
