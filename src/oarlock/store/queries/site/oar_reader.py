"""The tables of an OAR 2, read in one transaction."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, inspect, select, text
from sqlalchemy import column as plain_column
from sqlalchemy import table as plain_table

OAR_TABLES = (
    "accounting", "admission_rules", "assigned_resources", "challenges", "event_log_hostnames", "event_logs", "files",
    "frag_jobs", "job_dependencies", "job_resource_descriptions", "job_resource_groups", "job_state_logs", "job_types",
    "jobs", "moldable_job_descriptions", "queues", "resource_logs", "resources", "schema", "walltime_change",
)  # fmt: skip
_NEEDED = ("jobs", "resources", "queues", "moldable_job_descriptions", "assigned_resources", "accounting")
_AT_ONCE = 1_000
SourceRow = Mapping[str, Any]


class OarReader:
    """The tables of an OAR in one read-only transaction."""

    def __init__(self, tx: Connection) -> None:
        self._tx = tx
        self._columns: dict[str, dict[str, type]] = {}
        self._present = frozenset(inspect(tx).get_table_names())

    @property
    def missing(self) -> list[str]:
        """Which tables that every OAR has are not there."""
        return [name for name in _NEEDED if name not in self._present]

    def columns(self, name: str) -> dict[str, type]:
        """Return the columns of a table with `int` or `str`; nothing if there is no such table."""
        if name not in self._columns:
            rows = inspect(self._tx).get_columns(name) if name in self._present else []
            self._columns[name] = {row["name"]: _kind(row["type"]) for row in rows}
        return self._columns[name]

    def count(self, name: str) -> int:
        """Return how many rows a table has; 0 if it is not there."""
        if name not in self._present:
            return 0
        return int(self._tx.execute(select(func.count()).select_from(plain_table(name))).scalar_one())

    def highest(self, name: str, key: str) -> int:
        """Return the highest number of a column."""
        if name not in self._present:
            return 0
        return int(self._tx.execute(select(func.max(plain_column(key))).select_from(plain_table(name))).scalar() or 0)

    def rows(self, name: str, order: Sequence[str]) -> list[SourceRow]:
        """Return all rows of a small table."""
        if name not in self._present:
            return []
        query = self._select(name).order_by(*map(plain_column, order))
        return [dict(row) for row in self._tx.execute(query).mappings()]

    def pages(self, name: str, key: str, *, after: int = 0) -> Iterator[Sequence[SourceRow]]:
        """Yield the rows behind a number, some at once, by their number."""
        while True:
            query = self._select(name).where(plain_column(key) > after).order_by(plain_column(key)).limit(_AT_ONCE)
            rows: list[SourceRow] = [dict(row) for row in self._tx.execute(query).mappings()]
            if rows:
                yield rows
                after = int(rows[-1][key])
            if len(rows) < _AT_ONCE:
                return

    def of(self, name: str, key: str, numbers: Sequence[int], order: Sequence[str]) -> list[SourceRow]:
        """Return the rows of a table that belong to these numbers."""
        rows: list[SourceRow] = []
        if name not in self._present:
            return rows
        for at in range(0, len(numbers), _AT_ONCE):
            part = numbers[at : at + _AT_ONCE]
            query = self._select(name).where(plain_column(key).in_(part)).order_by(*map(plain_column, order))
            rows += (dict(row) for row in self._tx.execute(query).mappings())
        return rows

    def _select(self, name: str) -> Any:
        return select(*map(plain_column, self.columns(name))).select_from(plain_table(name))


def _kind(type_: Any) -> type:
    try:
        return int if type_.python_type is int else str
    except NotImplementedError:
        return str


def index_copy(tx: Connection) -> None:
    """Make the indexes that reading by job needs, on the temporary copy of a dump."""
    present = inspect(tx).get_table_names()
    for name, key in (
        ("jobs", "job_id"), ("moldable_job_descriptions", "moldable_job_id"),
        ("job_resource_groups", "res_group_moldable_id"), ("job_resource_descriptions", "res_job_group_id"),
        ("job_types", "job_id"), ("job_dependencies", "job_id"), ("job_state_logs", "job_id"),
        ("assigned_resources", "moldable_job_id"), ("frag_jobs", "frag_id_job"), ("walltime_change", "job_id"),
        ("event_logs", "event_id"), ("event_log_hostnames", "event_id"), ("resource_logs", "resource_log_id"),
    ):  # fmt: skip
        if name in present:
            tx.execute(text(f'CREATE INDEX "by_{name}" ON "{name}" ("{key}")'))
