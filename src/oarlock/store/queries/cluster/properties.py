"""Properties of resources: columns that a site adds, renames and drops, and the table that the scheduler reads."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import itemgetter
from typing import Any

from sqlalchemy import Column, ColumnElement, Select, String, TableClause, and_, column, select, table, text, update
from sqlalchemy.schema import CreateColumn
from sqlalchemy.types import TypeEngine

from oarlock.lang.limits import closest
from oarlock.lang.where import known_column
from oarlock.model.errors import BadPropertyName, PropertyExists, SystemColumn
from oarlock.model.resource import PROPERTY_ALIASES, ResourceOrder, ResourceState, Value
from oarlock.model.snapshot import ResourceTable
from oarlock.model.submission_errors import UnknownProperty
from oarlock.store.engine.tx import Tx
from oarlock.store.tables import resource_logs, resources
from oarlock.store.tables.columns import INTEGER, TEXT_BY_CODE_POINT

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
LONGEST_TEXT = 255
_LONGEST = 63  # PostgreSQL cuts longer names off without a word
_TEXT: TypeEngine[str] = String(LONGEST_TEXT).with_variant(String(LONGEST_TEXT, collation="C"), "postgresql")

KEPT = frozenset(
    {
        "resource_id",
        "state",
        "state_num",
        "next_state",
        "finaud_decision",
        "next_finaud_decision",
        "suspended_jobs",
        "scheduler_priority",
        "last_job_date",
    }
)
"""What the server itself keeps up to date: nobody sets it as a property."""

_WORDS_OF_REQUESTS = "and or not in like between is null true false all best besthalf node nodes walltime"
_WORDS_OF_SQL = """
    add alter as asc by case cast check collate column constraint create cross current_date current_time
    current_timestamp default delete desc distinct do drop else end escape except exists foreign from full glob grant
    group having index inner insert intersect into join key left limit natural on order outer primary references
    right rowid select set some table then to union unique update user using values when where with
"""
RESERVED = frozenset((*_WORDS_OF_REQUESTS.split(), *_WORDS_OF_SQL.split()))
"""Names that a property cannot have: they would be read as something else."""


def types(tx: Tx) -> dict[str, type]:
    """Return every column of resources, the site's own included, with `int` or `str`; those of the manual first."""
    rows = tx.execute(_SQLITE_COLUMNS if tx.dialect.name == "sqlite" else _POSTGRESQL_COLUMNS)
    return {name: str if "CHAR" in kind.upper() or "TEXT" in kind.upper() else int for name, kind in rows}


_SQLITE_COLUMNS = text("SELECT name, type FROM pragma_table_info('resources') ORDER BY cid")
_POSTGRESQL_COLUMNS = text(
    "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
    "WHERE attrelid = 'resources'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
)


def clause(columns: Mapping[str, type]) -> TableClause:
    """Return the resources table with these columns, for statements that read or set the site's own."""
    return _clause(tuple(columns.items()))


@lru_cache(maxsize=16)
def _clause(columns: tuple[tuple[str, type], ...]) -> TableClause:
    return table("resources", *(column(name, TEXT_BY_CODE_POINT if kind is str else INTEGER) for name, kind in columns))


def column_of(name: str) -> str:
    """Return the column that a name or an alias stands for."""
    return PROPERTY_ALIASES.get(name, name)


def unaliased(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return values under the names of their columns."""
    return {column_of(name): value for name, value in values.items()}


def add(tx: Tx, name: str, kind: type) -> bool:
    """Add a property that holds integers (`int`) or texts of at most 255 characters (`str`); nothing at first.

    Return whether it was added: one that is there already and holds the same kind of values is left as it is.
    """
    existing = types(tx)
    if existing.get(column_of(name)) is kind and column_of(name) not in KEPT:
        return False
    _check_new(name, existing)
    column_ddl = CreateColumn(Column(name, _TEXT if kind is str else INTEGER, quote=True)).compile(dialect=tx.dialect)
    tx.exec_driver_sql(f"ALTER TABLE resources ADD COLUMN {column_ddl}")
    return True


def rename(tx: Tx, old: str, new: str) -> None:
    """Rename a property; its values stay."""
    existing = types(tx)
    _check_own(old, existing)
    _check_new(new, {name: kind for name, kind in existing.items() if name != old})
    tx.exec_driver_sql(f"ALTER TABLE resources RENAME COLUMN {_quoted(tx, old)} TO {_quoted(tx, new)}")
    tx.execute(update(resource_logs).where(_present(old)).values(attribute=new))


def drop(tx: Tx, name: str, *, at: int) -> None:
    """Remove a property and its values. Jobs that ask for it can no longer be planned; `snapshot.read` names them."""
    _check_own(name, types(tx))
    tx.exec_driver_sql(f"ALTER TABLE resources DROP COLUMN {_quoted(tx, name)}")
    tx.execute(update(resource_logs).where(_present(name)).values(date_stop=at))


def _present(name: str) -> ColumnElement[bool]:
    """Build the condition for the open history rows of a property."""
    return and_(resource_logs.c.date_stop == 0, resource_logs.c.attribute == name)


def _quoted(tx: Tx, name: str) -> str:
    return tx.dialect.identifier_preparer.quote_identifier(name)


def _check_new(name: str, existing: Mapping[str, type]) -> None:
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise BadPropertyName(
            f"`{name[:_LONGEST]}` cannot be the name of a property.",
            hint=f"A name has letters, digits and `_`, no digit first, at most {_LONGEST} in all.",
        )
    if name.lower() in RESERVED:
        raise BadPropertyName(f"`{name}` cannot be the name of a property: it is a word of SQL or of requests.")
    for other in existing:
        if other.lower() == column_of(name.lower()):
            _refuse_system(other)
            raise PropertyExists(f"There is already a property `{other}`.", hint="`oarproperty -l` lists them.")


def _check_own(name: str, existing: Mapping[str, type]) -> None:
    _refuse_system(name)
    if name not in existing:
        raise UnknownProperty(f"There is no property `{name}`.", hint=closest(name, existing))


def _refuse_system(name: str) -> None:
    if column_of(name) in resources.c:
        raise SystemColumn(
            f"`{name}` is a column that every cluster has; it is not added, renamed or dropped.",
            hint="`oarproperty -l` lists the properties that are the site's own.",
        )


_PRIORITY = "scheduler_priority"
_FOLLOWED_SECONDS = 60  # how long the dates of the last jobs may go unseen


@dataclass(slots=True)
class ResourceTableCache:
    """The table that was read last; while nothing changes, the next read returns the same object.

    The end of each job changes `last_job_date`, and `scheduler_priority` follows best-effort jobs. If that made another
    table, whoever keeps a plan for the table would begin anew each time. So the first, unless resources are ordered by
    it, is seen a minute late; the second where it is `late`.
    """

    rows: Sequence[tuple[Any, ...]] = ()
    order: Sequence[ResourceOrder] = ()
    table: ResourceTable | None = None
    read_at: int = 0
    priorities: Mapping[int, int] = field(default_factory=dict)  # `scheduler_priority`, as it is, where it is not 0

    def holds(
        self,
        rows: Sequence[tuple[Any, ...]],
        types: Mapping[str, type],
        order: Sequence[ResourceOrder],
        now: int,
        *,
        late: bool,
    ) -> bool:
        """Return whether the table is what these rows would make, but for what may be seen late."""
        if self.table is None or list(self.table.columns) != list(types) or self.order != order:
            return False
        if rows == self.rows:
            return True
        if not self.read_at <= now < self.read_at + _FOLLOWED_SECONDS:
            return False
        unseen = {"last_job_date"}.difference(term.column for term in order) | ({_PRIORITY} if late else set())
        seen = itemgetter(*(at for at, name in enumerate(types) if name not in unseen))
        return list(map(seen, rows)) == list(map(seen, self.rows))


def read_resource_table(
    tx: Tx,
    types: Mapping[str, type],
    order: Sequence[ResourceOrder],
    memory: ResourceTableCache | None = None,
    also: Select[Any] | None = None,
    *,
    now: int = 0,
    late: bool = False,
) -> ResourceTable:
    """Read the resources that are not Dead, and those whose numbers `also` selects, in the order that is preferred.

    `late`: with a `memory`, another `scheduler_priority` may be followed later.
    """
    rows = [tuple(row) for row in tx.execute(_alive(clause(types), also))]
    if memory is None:
        return _ordered(rows, types, order)
    number, priority = list(types).index("resource_id"), list(types).index(_PRIORITY)
    memory.priorities = {row[number]: row[priority] for row in rows if row[priority]}
    table = memory.table
    if table is None or not memory.holds(rows, types, order, now, late=late):
        table = _ordered(rows, types, order)
        memory.rows, memory.order, memory.table, memory.read_at = rows, order, table, now
    return table


@lru_cache(maxsize=16)
def _alive(resource: TableClause, also: Select[Any] | None) -> Select[Any]:
    wanted = resource.c.state != ResourceState.DEAD.value
    if also is not None:
        wanted |= resource.c.resource_id.in_(also)
    return select(resource).where(wanted).order_by(resource.c.resource_id)


def _ordered(
    rows: Sequence[tuple[Any, ...]], types: Mapping[str, type], order: Sequence[ResourceOrder]
) -> ResourceTable:
    columns: dict[str, Sequence[Value]] = dict(
        zip(types, zip(*rows, strict=True) if rows else ((),) * len(types), strict=True)
    )
    order = [replace(key, column=known_column(key.column, types)) for key in order]
    places = _sorted(range(len(rows)), columns, order)
    sorted_columns = {name: tuple(map(column.__getitem__, places)) for name, column in columns.items()}
    return ResourceTable(ids=sorted_columns["resource_id"], columns=sorted_columns)  # type: ignore[arg-type]


def _sorted(places: Iterable[int], columns: Mapping[str, Sequence[Value]], order: Sequence[ResourceOrder]) -> list[int]:
    """Sort places by several columns; the two databases would put NULL at different ends."""
    result = list(places)
    for key in reversed(order):
        keys = [(value is not None, value) for value in columns[key.column]]
        result.sort(key=keys.__getitem__, reverse=key.descending)
    return result
