"""Bring what an OAR 2 knows into our own tables: resources, queues, past jobs, events and accounting.

Rows keep their numbers wherever ours are free. Everything is in one transaction: a source that fails half-way leaves
nothing. A second run continues: what is there already is left alone, and what belongs to somebody else is refused.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Table, func, inspect, select, text, update
from sqlalchemy import column as plain_column
from sqlalchemy import table as plain_table

from oarlock.model.errors import Conflict, OarlockError
from oarlock.model.event import event_type
from oarlock.model.job import FINAL
from oarlock.model.resource import PROPERTY_ALIASES, Value
from oarlock.store.engine import facts
from oarlock.store.engine.rows import bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx, highest_id, skip_ids
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.usage import accounting as accounting_queries
from oarlock.store.tables import (
    accounting,
    assigned_resources,
    event_log_hostnames,
    event_logs,
    frag_jobs,
    job_dependencies,
    job_resource_descriptions,
    job_resource_groups,
    job_state_logs,
    job_types,
    jobs,
    moldable_job_descriptions,
    queues,
    resource_logs,
    resources,
    walltime_change,
)

OAR_TABLES = (
    "accounting", "admission_rules", "assigned_resources", "challenges", "event_log_hostnames", "event_logs", "files",
    "frag_jobs", "job_dependencies", "job_resource_descriptions", "job_resource_groups", "job_state_logs", "job_types",
    "jobs", "moldable_job_descriptions", "queues", "resource_logs", "resources", "schema", "walltime_change",
)  # fmt: skip
_NEEDED = ("jobs", "resources", "queues", "moldable_job_descriptions", "assigned_resources", "accounting")
_AT_ONCE = 1_000
_OVER = tuple(sorted(FINAL))
_EVENTS = "import: last event"
_CHANGES = "import: last change of a resource"
_NOWHERE = frozenset({"last_available_upto"})  # columns of OAR's resources that nothing here would read
_LOG = "LOG"
_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ForeignRule:
    """A row of OAR's admission rules, as it stands there."""

    number: int
    priority: int
    enabled: bool
    text: str


@dataclass(slots=True)
class ImportCounts:
    """What an import did. `copied` and `present` count rows by table; `no_place` has a sentence each."""

    version: str = ""
    copied: Counter[str] = field(default_factory=Counter)
    present: Counter[str] = field(default_factory=Counter)
    no_place: list[str] = field(default_factory=list)
    rules: list[ForeignRule] = field(default_factory=list)


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

    def rows(self, name: str, order: Sequence[str]) -> list[_Row]:
        """Return all rows of a small table."""
        if name not in self._present:
            return []
        query = self._select(name).order_by(*map(plain_column, order))
        return [dict(row) for row in self._tx.execute(query).mappings()]

    def pages(self, name: str, key: str, *, after: int = 0) -> Iterator[Sequence[_Row]]:
        """Yield the rows behind a number, some at once, by their number."""
        while True:
            query = self._select(name).where(plain_column(key) > after).order_by(plain_column(key)).limit(_AT_ONCE)
            rows: list[_Row] = [dict(row) for row in self._tx.execute(query).mappings()]
            if rows:
                yield rows
                after = int(rows[-1][key])
            if len(rows) < _AT_ONCE:
                return

    def of(self, name: str, key: str, numbers: Sequence[int], order: Sequence[str]) -> list[_Row]:
        """Return the rows of a table that belong to these numbers."""
        rows: list[_Row] = []
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


def import_all(tx: Tx, source: OarReader, report: ImportCounts, say: Callable[[str], None]) -> None:
    """Copy everything that has a place here."""
    version = source.rows("schema", ["version"])
    report.version = str(version[-1]["version"]) if version else ""
    _import_queues(tx, source, report)
    _import_resources(tx, source, report)
    _import_jobs(tx, source, report, say)
    _import_changes(tx, source, report)
    _import_events(tx, source, report)
    _import_accounting(tx, source, report)
    report.rules = [
        ForeignRule(int(row["id"]), int(row.get("priority") or 0), row.get("enabled", "YES") == "YES", str(row["rule"]))
        for row in source.rows("admission_rules", ["id"])
    ]
    _tell_of_the_rest(source, report)


def _tell_of_the_rest(source: OarReader, report: ImportCounts) -> None:
    for name, says in (
        ("challenges", "keys of jobs, which are good only where OAR made them"),
        ("files", "archives of stage-in, which OAR keeps in its own directory"),
    ):
        if count := source.count(name):
            report.no_place.append(f"{name}: {count} rows ({says}).")


# Values.


def _fitted(target: Table, row: _Row, **given: Any) -> tuple[Any, ...]:
    """Return the values of a row in the order of our columns; what has no place or no value is our default."""
    return tuple(_value(column, given.get(column.name, row.get(column.name))) for column in target.columns)


def _value(column: Column[Any], value: Any) -> Any:
    default = column.info.get("default")
    if value is None:
        return default
    if isinstance(column.type, BigInteger):
        return int(value)
    words = column.info.get("words")
    return default if words is not None and value not in words else str(value)


def _insert(tx: Tx, target: Table, rows: Sequence[tuple[Any, ...]], report: ImportCounts) -> None:
    insert_rows(tx, target.name, [column.name for column in target.columns], rows)
    report.copied[target.name] += len(rows)


class _Numbers:
    """Numbers for rows of a table: the source's own where ours are free, otherwise above all of both."""

    def __init__(self, tx: Tx, key: Column[int], highest: int) -> None:
        self._tx, self._key = tx, key
        self._empty = tx.execute(select(func.count()).select_from(key.table)).scalar_one() == 0
        self._next = max(highest, highest_id(tx, key)) + 1

    def of(self, wanted: Iterable[int]) -> dict[int, int]:
        """Return the number of each."""
        wanted = list(dict.fromkeys(wanted))
        taken = set() if self._empty else self._taken(wanted)
        chosen = {}
        for number in wanted:
            chosen[number] = self._following() if number in taken else number
        return chosen

    def _taken(self, wanted: list[int]) -> set[int]:
        query = select(self._key).where(id_in(self._tx.dialect.name, self._key))
        return set(self._tx.execute(query, bind_ids(self._tx, wanted)).scalars())

    def _following(self) -> int:
        self._next += 1
        return self._next - 1


# What the cluster has.


def _import_queues(tx: Tx, source: OarReader, report: ImportCounts) -> None:
    """Add queues; those that are here already take OAR's priority and state."""
    ours = {row.queue_name: row for row in tx.execute(select(queues))}
    new = []
    for row in source.rows("queues", ["queue_name"]):
        name = str(row["queue_name"])
        values = {
            "priority": int(row["priority"] or 0),
            "scheduler_policy": str(row["scheduler_policy"]),
            "state": "Active" if row["state"] == "Active" else "notActive",
        }
        if name not in ours:
            new.append((name, *values.values()))
        elif tuple(ours[name])[1:] == tuple(values.values()):
            report.present["queues"] += 1
        else:
            tx.execute(update(queues).where(queues.c.queue_name == name).values(values))
            report.copied["queues"] += 1
    _insert(tx, queues, new, report)


def _import_resources(tx: Tx, source: OarReader, report: ImportCounts) -> None:
    kinds = {PROPERTY_ALIASES.get(name, name): kind for name, kind in source.columns("resources").items()}
    _add_properties(tx, kinds, report)
    rows = [
        {PROPERTY_ALIASES.get(name, name): value for name, value in row.items()}
        for row in source.rows("resources", ["resource_id"])
    ]
    here = {
        row.resource_id: (row.type, row.network_address)
        for row in tx.execute(select(resources.c.resource_id, resources.c.type, resources.c.network_address))
    }
    for row in rows:
        number, place = int(row["resource_id"]), (row["type"], row["network_address"] or "")
        if here.get(number, place) != place:
            raise Conflict(
                f"Resource {number} is {here[number][1] or here[number][0]} here, and {place[1] or place[0]} in OAR.",
                hint="Import into an instance without resources of its own: nothing was changed.",
            )
    own = properties.types(tx)
    names = [name for name in own if name in kinds]
    defaults = {column.name: column.info.get("default") for column in resources.columns}
    new = [row for row in rows if int(row["resource_id"]) not in here]
    insert_rows(
        tx, "resources", names, [[_property(row[name], own[name], defaults.get(name)) for name in names] for row in new]
    )
    report.copied["resources"] += len(new)
    report.present["resources"] += len(rows) - len(new)


def _add_properties(tx: Tx, kinds: Mapping[str, type], report: ImportCounts) -> None:
    existing = properties.types(tx)
    for name, kind in kinds.items():
        if name in existing:
            continue
        if name in _NOWHERE:
            report.no_place.append(f"resources.{name}: OAR's own note about sleeping nodes.")
            continue
        try:
            properties.add(tx, name, kind)
            report.copied["properties"] += 1
        except OarlockError as refused:
            report.no_place.append(f"resources.{name}: {refused}")


def _property(value: Value, kind: type, default: Value) -> Value:
    if value is None:
        return default
    if kind is str:
        return str(value)[: properties.LONGEST_TEXT]
    return int(value) if str(value).lstrip("-").isdecimal() else default


def _import_changes(tx: Tx, source: OarReader, report: ImportCounts) -> None:
    """Add the history of properties; a second run ends what the first one saw go on."""
    seen_up_to = int(facts.get(tx, _CHANGES) or 0)
    _end_changes(tx, source, seen_up_to)
    numbers = _Numbers(tx, resource_logs.c.resource_log_id, source.highest("resource_logs", "resource_log_id"))
    for page in source.pages("resource_logs", "resource_log_id", after=seen_up_to):
        chosen = numbers.of(int(row["resource_log_id"]) for row in page)
        rows = [
            _fitted(
                resource_logs, row, resource_log_id=chosen[int(row["resource_log_id"])],
                attribute=PROPERTY_ALIASES.get(row["attribute"], row["attribute"]),
            )
            for row in page
        ]  # fmt: skip
        _insert(tx, resource_logs, rows, report)
        seen_up_to = int(page[-1]["resource_log_id"])
    facts.put(tx, _CHANGES, str(seen_up_to))


def _end_changes(tx: Tx, source: OarReader, seen_up_to: int) -> None:
    log = resource_logs.c
    if not seen_up_to:
        return
    running = {
        (row.resource_id, row.attribute, row.date_start): row.resource_log_id
        for row in tx.execute(
            select(log.resource_id, log.attribute, log.date_start, log.resource_log_id).where(log.date_stop == 0)
        )
    }
    for page in source.pages("resource_logs", "resource_log_id"):
        for row in page:
            attribute = PROPERTY_ALIASES.get(row["attribute"], row["attribute"])
            number = running.get((int(row["resource_id"]), attribute, int(row["date_start"])))
            if number is not None and int(row["date_stop"]) and int(row["resource_log_id"]) <= seen_up_to:
                ended = {"date_stop": int(row["date_stop"])}
                tx.execute(update(resource_logs).where(log.resource_log_id == number).values(ended))


# What happened.


def _import_events(tx: Tx, source: OarReader, report: ImportCounts) -> None:
    seen_up_to = int(facts.get(tx, _EVENTS) or 0)
    numbers = _Numbers(tx, event_logs.c.event_id, source.highest("event_logs", "event_id"))
    strange: Counter[str] = Counter()
    for page in source.pages("event_logs", "event_id", after=seen_up_to):
        understood = [row for row in page if _event_name(row["type"])]
        strange.update(str(row["type"]) for row in page if not _event_name(row["type"]))
        chosen = numbers.of(int(row["event_id"]) for row in understood)
        rows = [
            _fitted(
                event_logs, row, event_id=chosen[int(row["event_id"])], type=_event_name(row["type"]), to_check="NO"
            )
            for row in understood
        ]  # fmt: skip
        _insert(tx, event_logs, rows, report)
        hosts = source.of("event_log_hostnames", "event_id", list(chosen), ["event_id", "hostname"])
        named = [_fitted(event_log_hostnames, row, event_id=chosen[int(row["event_id"])]) for row in hosts]
        _insert(tx, event_log_hostnames, named, report)
        seen_up_to = int(page[-1]["event_id"])
    facts.put(tx, _EVENTS, str(seen_up_to))
    for name, count in sorted(strange.items()):
        report.no_place.append(f"event_logs: {count} events of the type {name}, which is unknown here.")


def _event_name(name: str) -> str:
    try:
        return event_type(name).value
    except ValueError:
        return ""


def _import_accounting(tx: Tx, source: OarReader, report: ImportCounts) -> None:
    """Add windows of accounting; where one is here already, the larger amount holds: OAR's windows only grow."""
    names = [column.name for column in accounting.columns]
    here = {tuple(row)[:-1]: row[-1] for row in tx.execute(select(*accounting.columns))}
    new = []
    for row in source.rows("accounting", names[:-1]):
        values = _fitted(accounting, row)
        before = here.get(values[:-1])
        if before is None:
            new.append(values)
        elif before >= values[-1]:
            report.present["accounting"] += 1
        else:
            same = [accounting.c[name] == value for name, value in zip(names[:-1], values[:-1], strict=True)]
            tx.execute(update(accounting).where(*same).values(consumption=values[-1]))
            report.copied["accounting"] += 1
    _insert(tx, accounting, new, report)
    if new:
        ends = accounting_queries.latest_window(tx)
        accounting_queries.compare_accounts_from(tx, ends + 1)


# Jobs.


def _import_jobs(tx: Tx, source: OarReader, report: ImportCounts, say: Callable[[str], None]) -> None:
    """Copy jobs that are over with all that belongs to them; the others are counted and left to OAR."""
    numbers = {
        table_.name: _Numbers(tx, next(iter(table_.primary_key)), source.highest(table_.name, _first_key(table_)))
        for table_ in (moldable_job_descriptions, job_resource_groups, job_types, job_state_logs)
    }
    living: Counter[str] = Counter()
    total, done = source.count("jobs"), 0
    for page in source.pages("jobs", "job_id"):
        over = [row for row in page if row["state"] in _OVER]
        living.update(str(row["state"]) for row in page if row["state"] not in _OVER)
        new = _not_here(tx, over)
        report.present["jobs"] += len(over) - len(new)
        if new:
            _write_jobs(tx, source, new, numbers, report)
        done += len(page)
        if done < total:
            say(f"{done} of {total} jobs read")
    for state, count in sorted(living.items()):
        report.no_place.append(f"jobs: {count} in state {state}; import again when they are over.")
    # A job of ours must not have the number of one that OAR still runs.
    skip_ids(tx, jobs.c.job_id, source.highest("jobs", "job_id"))


def _first_key(table_: Table) -> str:
    return next(iter(table_.primary_key)).name


def _not_here(tx: Tx, rows: Sequence[_Row]) -> list[_Row]:
    """Return the jobs that are not here yet; `Conflict` if a number is that of another job."""
    job = jobs.c
    query = select(job.job_id, job.job_user, job.submission_time).where(id_in(tx.dialect.name, job.job_id))
    here = {row.job_id: row for row in tx.execute(query, bind_ids(tx, [int(row["job_id"]) for row in rows]))}
    for row in rows:
        other = here.get(int(row["job_id"]))
        if other is not None and (other[1], other[2]) != (row["job_user"], int(row["submission_time"])):
            raise Conflict(
                f"Job {other[0]} of {other[1]} is here already, and OAR's job {other[0]} is of {row['job_user']}.",
                hint="Import before the first job of this instance, or into another one: nothing was changed.",
            )
    return [row for row in rows if int(row["job_id"]) not in here]


def _write_jobs(
    tx: Tx, source: OarReader, new: Sequence[_Row], numbers: Mapping[str, _Numbers], report: ImportCounts
) -> None:
    ids = [int(row["job_id"]) for row in new]
    moldables = source.of("moldable_job_descriptions", "moldable_job_id", ids, ["moldable_id"])
    chosen = numbers["moldable_job_descriptions"].of(int(row["moldable_id"]) for row in moldables)
    rows = [
        _fitted(
            jobs, row, cpuset_name=f"{row['job_user']}_{row['job_id']}", file_id=None,
            assigned_moldable_job=chosen.get(int(row["assigned_moldable_job"] or 0), 0),
            array_id=int(row.get("array_id") or row["job_id"]),
        )
        for row in new
    ]  # fmt: skip
    _insert(tx, jobs, rows, report)
    described = [
        _fitted(moldable_job_descriptions, row, moldable_id=chosen[int(row["moldable_id"])], moldable_index=_LOG)
        for row in moldables
    ]
    _insert(tx, moldable_job_descriptions, described, report)
    _write_requests(tx, source, chosen, numbers["job_resource_groups"], report)
    held = source.of("assigned_resources", "moldable_job_id", list(chosen), ["moldable_job_id", "resource_id"])
    given = [
        _fitted(
            assigned_resources, row, moldable_job_id=chosen[int(row["moldable_job_id"])], assigned_resource_index=_LOG
        )
        for row in held
    ]  # fmt: skip
    _insert(tx, assigned_resources, given, report)
    _write_kinds(tx, source, ids, numbers, report)
    needs = source.of("job_dependencies", "job_id", ids, ["job_id", "job_id_required"])
    _insert(tx, job_dependencies, [_fitted(job_dependencies, row, job_dependency_index=_LOG) for row in needs], report)
    killed = source.of("frag_jobs", "frag_id_job", ids, ["frag_id_job"])
    _insert(tx, frag_jobs, [_fitted(frag_jobs, row, frag_state="FRAGGED") for row in killed], report)
    longer = source.of("walltime_change", "job_id", ids, ["job_id"])
    _insert(tx, walltime_change, [_fitted(walltime_change, row) for row in longer], report)


def _write_requests(
    tx: Tx, source: OarReader, moldables: Mapping[int, int], numbers: _Numbers, report: ImportCounts
) -> None:
    groups = source.of("job_resource_groups", "res_group_moldable_id", list(moldables), ["res_group_id"])
    chosen = numbers.of(int(row["res_group_id"]) for row in groups)
    rows = [
        _fitted(
            job_resource_groups, row, res_group_id=chosen[int(row["res_group_id"])],
            res_group_moldable_id=moldables[int(row["res_group_moldable_id"])], res_group_index=_LOG,
        )
        for row in groups
    ]  # fmt: skip
    _insert(tx, job_resource_groups, rows, report)
    levels = source.of(
        "job_resource_descriptions", "res_job_group_id", list(chosen), ["res_job_group_id", "res_job_order"]
    )
    descriptions = [
        _fitted(
            job_resource_descriptions, row, res_job_group_id=chosen[int(row["res_job_group_id"])], res_job_index=_LOG
        )
        for row in levels
    ]  # fmt: skip
    _insert(tx, job_resource_descriptions, descriptions, report)


def _write_kinds(
    tx: Tx, source: OarReader, ids: Sequence[int], numbers: Mapping[str, _Numbers], report: ImportCounts
) -> None:
    """Write types and states."""
    types = source.of("job_types", "job_id", ids, ["job_type_id"])
    chosen = numbers["job_types"].of(int(row["job_type_id"]) for row in types)
    rows = [_fitted(job_types, row, job_type_id=chosen[int(row["job_type_id"])], type_index=_LOG) for row in types]
    _insert(tx, job_types, rows, report)
    stays = source.of("job_state_logs", "job_id", ids, ["job_state_log_id"])
    chosen = numbers["job_state_logs"].of(int(row["job_state_log_id"]) for row in stays)
    rows = [_fitted(job_state_logs, row, job_state_log_id=chosen[int(row["job_state_log_id"])]) for row in stays]
    _insert(tx, job_state_logs, rows, report)
