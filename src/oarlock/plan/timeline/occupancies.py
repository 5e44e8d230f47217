"""The occupancies of a pass, one per kind of job, and which jobs block which."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from oarlock.model.errors import OarlockError
from oarlock.model.job_type import EVERYBODY, SHARING_SCOPE, JobTypes
from oarlock.plan.sets.selection import Availability
from oarlock.plan.timeline.containers import Containers
from oarlock.plan.timeline.occupancy import FOREVER, NewOccupancy, Occupancy, Occupation

_ALONE = f"{EVERYBODY},{EVERYBODY}"


class BadTimesharing(OarlockError):
    """A timesharing type that is none of the manual's four."""


class SharingClass(NamedTuple):
    """With whom a job shares its resources: jobs of the very same class."""

    user: str
    name: str


def sharing_class(types: JobTypes, user: str, name: str | None) -> SharingClass | None:
    """Return a job's timesharing class; None if it does not share.

    `timesharing` alone is `*,*`. `user` stands for the job's own user; `name` (the manual also writes `job_name`) for
    its own name, and an unnamed job falls back to `*`.
    """
    scope = types.timesharing
    if scope is None:
        return None
    match = SHARING_SCOPE.fullmatch(scope or _ALONE)
    if match is None:
        raise BadTimesharing(
            f"`timesharing={scope}` is not a way to share.",
            hint="It is one of *,*   user,*   *,name   user,name.",
        )
    of_user, of_name = (part != EVERYBODY for part in match.groups())
    return SharingClass(user if of_user else EVERYBODY, (name or EVERYBODY) if of_name else EVERYBODY)


class OccupancyKind(NamedTuple):
    """The properties of a job that decide which other jobs block it."""

    besteffort: bool = False
    sharing: SharingClass | None = None
    reservation: bool = False  # new, with a date: it may use resources that are unavailable today
    container: str | None = None  # the container it belongs into
    placeholder: str | None = None  # it keeps its resources for jobs whose `allowed` has this name
    allowed: str | None = None
    permissive: bool = False  # it may use resources that are not Alive

    @property
    def in_any_state(self) -> bool:
        """Whether it may be planned on resources that cannot be used today."""
        return self.reservation or self.permissive

    def is_blocked_by(self, other: "OccupancyKind") -> bool:
        """Return whether jobs of the other kind block jobs of this kind.

        Jobs in different containers never share resources. Best-effort jobs block only each other; jobs of one
        timesharing class do not block each other, nor does a placeholder block the jobs it is meant for.
        """
        if self.container != other.container or (other.besteffort and not self.besteffort):
            return False
        if other.placeholder is not None and other.placeholder == self.allowed:
            return False
        return self.sharing is None or self.sharing != other.sharing


class JobOccupation(Struct, frozen=True, gc=False):
    """The occupation of a job, with its kind."""

    kind: OccupancyKind
    occupation: Occupation


class Occupancies:
    """One occupancy per kind of job, built when the first job needs it. `windows` block jobs of every kind."""

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
        self._new_empty = new_chart
        self._available = available
        self._by_kind: dict[OccupancyKind, Occupancy] = {}

    def copy(self) -> "Occupancies":
        """Return an independent copy."""
        duplicate = Occupancies(self._new_empty, self._available, self.now, self._windows, self._containers)
        duplicate.settled = self.settled.copy()
        duplicate._by_kind = {kind: occupancy.copy() for kind, occupancy in self._by_kind.items()}
        return duplicate

    def occupancy(self, kind: OccupancyKind) -> Occupancy:
        """Return the occupancy as jobs of this kind see it."""
        occupancy = self._by_kind.get(kind)
        if occupancy is None:
            occupancy = self._by_kind[kind] = self._new_occupancy(kind)
        return occupancy

    def settle(
        self, job_id: int, kind: OccupancyKind, occupation: Occupation, *, found_in: Occupancy | None = None
    ) -> None:
        """Add a job's occupation to every occupancy that it blocks; in `found_in` its resources are surely free."""
        self.settled[job_id] = JobOccupation(kind, occupation)
        for other_kind, occupancy in self._by_kind.items():
            if other_kind.is_blocked_by(kind):
                occupancy.add(job_id, occupation, exclusive=occupancy is found_in)

    def remove(self, job_id: int) -> JobOccupation:
        """Remove a job's occupation from every occupancy."""
        settled = self.settled.pop(job_id)
        for other_kind, occupancy in self._by_kind.items():
            if other_kind.is_blocked_by(settled.kind):
                occupancy.remove(job_id)
        return settled

    def forget_container(self, container: str) -> None:
        """Drop the occupancies of a container's inner jobs; the next use rebuilds them."""
        for kind in [kind for kind in self._by_kind if kind.container == container]:
            del self._by_kind[kind]

    def advance(self, now: int) -> None:
        """Drop the past of every occupancy."""
        self.now = now
        for occupancy in self._by_kind.values():
            occupancy.advance(now)

    def _new_occupancy(self, kind: OccupancyKind) -> Occupancy:
        usable = self._available.existing if kind.in_any_state else self._available.plannable
        if kind.container is not None:
            usable &= self._containers.resources(kind.container)
        occupancy = self._new_empty(self.now, usable)
        for number, occupation in enumerate(self._unavailable(kind), 1):
            occupancy.add(-number, occupation, exclusive=False)
        for job_id, settled in self.settled.items():
            if kind.is_blocked_by(settled.kind):
                occupancy.add(job_id, settled.occupation, exclusive=False)
        return occupancy

    def _unavailable(self, kind: OccupancyKind) -> list[Occupation]:
        """Return when resources are unavailable: windows and, for inner jobs, the time outside of the container."""
        away = list(self._windows)
        if kind.container is not None:
            away += self._containers.outside(kind.container)
        if not kind.in_any_state:
            # A node that can be woken is unavailable again after its date.
            away += [Occupation(until, FOREVER, resources) for until, resources in self._available.asleep]
        return away
