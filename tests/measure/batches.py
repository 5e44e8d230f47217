"""What tests of the agent's outputs share: batches made by hand."""

from collections.abc import Mapping, Sequence

from oarlock.measure import names
from oarlock.measure.batch import Batch, Subject
from oarlock.measure.exposition import Exposition
from oarlock.measure.naming import Naming
from oarlock.measure.owners import Owner


def job(number: str, values: Mapping[str, float], *, scope: str = "job", path: str = "", **owner: str) -> Subject:
    """Give a job of Ada's."""
    whose = Owner(**{"job": number, "user": "ada", "uid": "1001", "account": "physics", "manager": "slurm", **owner})
    return Subject((whose.manager, whose.node, number), scope, whose, values, path)


def batch(*subjects: Subject, at: float = 100.0, node: Mapping[str, float] | None = None) -> Batch:
    return Batch(at, "node7", subjects, node or {})


def naming(*families: str) -> Naming:
    return Naming(names.chosen(families))


def lines(exposition: Exposition, *starts: str) -> list[str]:
    """Give the page's lines that begin so, without comments."""
    assert exposition.page
    text = b"".join(exposition.page.pieces).decode()
    return [line for line in text.splitlines() if not line.startswith("#") and line.startswith(starts or ("",))]


def pages(families: Sequence[str], *batches: Batch, **constant: str) -> Exposition:
    """Give the page after these batches."""
    exposition = Exposition(naming(*families), constant)
    for one in batches:
        exposition.take(one)
    return exposition
