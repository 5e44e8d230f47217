"""What tests of the agent's outputs share: batches made by hand."""

from collections.abc import Mapping, Sequence

from oarlock.measure import names
from oarlock.measure.batch import JobOwner, MeasuredSubject, SampleBatch
from oarlock.measure.exposition import Exposition
from oarlock.measure.naming import Naming


def job(
    number: str, values: Mapping[str, float], *, scope: str = "job", path: str = "", **owner: str
) -> MeasuredSubject:
    """Give a job of Ada's."""
    whose = JobOwner(**{"job": number, "user": "ada", "uid": "1001", "account": "physics", "manager": "slurm", **owner})
    return MeasuredSubject((whose.manager, whose.node, number), scope, whose, values, path)


def batch(*subjects: MeasuredSubject, at: float = 100.0, node: Mapping[str, float] | None = None) -> SampleBatch:
    return SampleBatch(at, "node7", subjects, node or {})


def naming(*families: str) -> Naming:
    return Naming(names.select_families(families))


def lines(exposition: Exposition, *starts: str) -> list[str]:
    """Give the page's lines that begin so, without comments."""
    assert exposition.page
    text = b"".join(exposition.page.pieces).decode()
    return [line for line in text.splitlines() if not line.startswith("#") and line.startswith(starts or ("",))]


def pages(families: Sequence[str], *batches: SampleBatch, **constant: str) -> Exposition:
    """Give the page after these batches."""
    exposition = Exposition(naming(*families), constant)
    for one in batches:
        exposition.take(one)
    return exposition
