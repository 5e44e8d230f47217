"""A trace: jobs of the past, in one form for every file format."""

from functools import lru_cache
from operator import attrgetter

from msgspec import Struct

from oarlock.model.errors import OarlockError
from oarlock.model.snapshot import ResourceTable, Shape
from oarlock.model.submission import Level, ResourceGroup


class TraceRefused(OarlockError):
    """A trace that cannot be read or replayed."""


class TraceJob(Struct, frozen=True, gc=False):
    """A job of the past: what it asked for, and how long it ran. Instants and durations are seconds.

    `processors` is how many resources it held; `waited` is how long it really waited, where that is known.
    """

    number: int
    submitted: int
    run: int
    walltime: int
    shape: Shape
    processors: int
    user: str = "-"
    project: str = "-"
    waited: int | None = None


class Trace(Struct, frozen=True):
    """Jobs by the instant of their submission.

    `skipped`: lines or jobs that say nothing usable, by reason; `remarks`: what a reader of the results has to know.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    processors: int | None = None  # of the machine, where the trace says so
    resources: ResourceTable | None = None  # of the cluster, where the trace brings it
    skipped: dict[str, int] = {}
    remarks: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def flat(count: int) -> Shape:
    """Ask for so many resources, whichever."""
    return Shape((ResourceGroup((Level("resource_id", count),)),))


@lru_cache(maxsize=4096)
def parts(nodes: int, cores: int) -> Shape:
    """Ask for so many nodes with so many cores each."""
    return Shape((ResourceGroup((Level("network_address", nodes), Level("core", cores))),))


def by_submission(jobs: list[TraceJob]) -> tuple[TraceJob, ...]:
    """Bring jobs into the order in which they came; those of one instant stay as they were written down."""
    return tuple(sorted(jobs, key=attrgetter("submitted")))
