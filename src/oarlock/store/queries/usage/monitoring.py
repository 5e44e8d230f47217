"""What `oarmonitor` recorded of jobs (table `monitoring_samples`): values by node, date and metric."""

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from sqlalchemy import func, select, true

from oarlock.store.engine.rows import BoundRows
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import monitoring_samples

_TABLE = monitoring_samples.c
_ROWS = BoundRows("recorded", **{column.name: column.type for column in _TABLE})
_FEWEST = 50  # points of a curve, however many curves there are


class MonitoredValue(NamedTuple):
    """A value of a job on a node; dates are epoch seconds."""

    job_id: int
    node: str
    date: int
    metric: str
    value: float


class RecordedExtent(NamedTuple):
    """How much was recorded of a job; all 0 if nothing was."""

    values: int
    nodes: int
    first: int
    last: int
    curves: int


class MonitoredCurve(NamedTuple):
    """A metric of a job on a node, oldest point first."""

    node: str
    metric: str
    points: list[tuple[int, float]]


def add(tx: Tx, values: Sequence[MonitoredValue]) -> int:
    """Insert values; those that are there already (the same sample, looked at again) stay. Return how many are new."""
    if not values:
        return 0
    return tx.execute(_insert(tx.dialect.name), _ROWS.parameters(tx, values)).rowcount


@cache
def _insert(engine: str) -> Any:
    insert: Any = import_module(f"sqlalchemy.dialects.{engine}").insert(monitoring_samples)
    # SQLite takes ON CONFLICT behind a SELECT only after a WHERE.
    rows = select(_ROWS.table(engine)).where(true())
    return (
        insert.from_select([column.name for column in _TABLE], rows)
        .on_conflict_do_nothing()
        .execution_options(preserve_rowcount=True)
    )


def extent(tx: Tx, job_id: int) -> RecordedExtent:
    """Return how much was recorded of a job."""
    nodes = func.count(_TABLE.network_address.distinct())
    counted = select(func.count(), nodes, func.min(_TABLE.date), func.max(_TABLE.date)).where(_TABLE.job_id == job_id)
    values, hosts, first, last = tx.execute(counted).one()
    pairs = select(_TABLE.network_address, _TABLE.metric).where(_TABLE.job_id == job_id).distinct().subquery()
    curves = tx.execute(select(func.count()).select_from(pairs)).scalar_one()
    return RecordedExtent(values, hosts, first or 0, last or 0, curves)


def curves(tx: Tx, job_id: int, *, most: int) -> list[MonitoredCurve]:
    """Return the curves of a job with at most about so many points together.

    Where there are more, the largest value of each stretch of time stands for it: peaks stay, and counters only grow.
    """
    recorded = extent(tx, job_id)
    parts = max(_FEWEST, most // max(recorded.curves, 1))
    stretch = max(1, -(-(recorded.last - recorded.first + 1) // parts))
    rows = tx.execute(
        select(_TABLE.network_address, _TABLE.metric, func.max(_TABLE.date), func.max(_TABLE.value))
        .where(_TABLE.job_id == job_id)
        .group_by(_TABLE.network_address, _TABLE.metric, (_TABLE.date - recorded.first) // stretch)
        .order_by(_TABLE.network_address, _TABLE.metric, func.max(_TABLE.date))
    )
    points_of: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for node, metric, date, value in rows:
        points_of.setdefault((node, metric), []).append((date, value))
    return [MonitoredCurve(node, metric, points) for (node, metric), points in points_of.items()]
