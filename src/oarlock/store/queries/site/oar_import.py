"""Bring what an OAR 2 knows into our own tables: resources, queues, past jobs, events and accounting.

Rows keep their numbers wherever ours are free. Everything is in one transaction: a source that fails half-way leaves
nothing. A second run continues: what is there already is left alone, and what belongs to somebody else is refused.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from sqlalchemy import select, update

from oarlock.model.errors import Conflict, OarlockError
from oarlock.model.event import event_type
from oarlock.model.resource import PROPERTY_ALIASES, Value
from oarlock.store.engine import facts
from oarlock.store.engine.rows import insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.site.imported_rows import ForeignRule, FreeNumbers, ImportCounts, fitted, insert
from oarlock.store.queries.site.oar_jobs import import_jobs
from oarlock.store.queries.site.oar_reader import OarReader
from oarlock.store.queries.usage import accounting as accounting_queries
from oarlock.store.tables import accounting, event_log_hostnames, event_logs, queues, resource_logs, resources

_EVENTS = "import: last event"
_CHANGES = "import: last change of a resource"
_NOWHERE = frozenset({"last_available_upto"})  # columns of OAR's resources that nothing here would read


def import_all(tx: Tx, source: OarReader, report: ImportCounts, say: Callable[[str], None]) -> None:
    """Copy everything that has a place here."""
    version = source.rows("schema", ["version"])
    report.version = str(version[-1]["version"]) if version else ""
    _import_queues(tx, source, report)
    _import_resources(tx, source, report)
    import_jobs(tx, source, report, say)
    _import_changes(tx, source, report)
    _import_events(tx, source, report)
    _import_accounting(tx, source, report)
    report.rules = [
        ForeignRule(int(row["id"]), int(row.get("priority") or 0), row.get("enabled", "YES") == "YES", str(row["rule"]))
        for row in source.rows("admission_rules", ["id"])
    ]
    _report_rest(source, report)


def _report_rest(source: OarReader, report: ImportCounts) -> None:
    for name, says in (
        ("challenges", "keys of jobs, which are good only where OAR made them"),
        ("files", "archives of stage-in, which OAR keeps in its own directory"),
    ):
        if count := source.count(name):
            report.no_place.append(f"{name}: {count} rows ({says}).")


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
    insert(tx, queues, new, report)


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
    numbers = FreeNumbers(tx, resource_logs.c.resource_log_id, source.highest("resource_logs", "resource_log_id"))
    for page in source.pages("resource_logs", "resource_log_id", after=seen_up_to):
        chosen = numbers.of(int(row["resource_log_id"]) for row in page)
        rows = [
            fitted(
                resource_logs, row, resource_log_id=chosen[int(row["resource_log_id"])],
                attribute=PROPERTY_ALIASES.get(row["attribute"], row["attribute"]),
            )
            for row in page
        ]  # fmt: skip
        insert(tx, resource_logs, rows, report)
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
    numbers = FreeNumbers(tx, event_logs.c.event_id, source.highest("event_logs", "event_id"))
    strange: Counter[str] = Counter()
    for page in source.pages("event_logs", "event_id", after=seen_up_to):
        understood = [row for row in page if _event_name(row["type"])]
        strange.update(str(row["type"]) for row in page if not _event_name(row["type"]))
        chosen = numbers.of(int(row["event_id"]) for row in understood)
        rows = [
            fitted(
                event_logs, row, event_id=chosen[int(row["event_id"])], type=_event_name(row["type"]), to_check="NO"
            )
            for row in understood
        ]  # fmt: skip
        insert(tx, event_logs, rows, report)
        hosts = source.of("event_log_hostnames", "event_id", list(chosen), ["event_id", "hostname"])
        named = [fitted(event_log_hostnames, row, event_id=chosen[int(row["event_id"])]) for row in hosts]
        insert(tx, event_log_hostnames, named, report)
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
        values = fitted(accounting, row)
        before = here.get(values[:-1])
        if before is None:
            new.append(values)
        elif before >= values[-1]:
            report.present["accounting"] += 1
        else:
            same = [accounting.c[name] == value for name, value in zip(names[:-1], values[:-1], strict=True)]
            tx.execute(update(accounting).where(*same).values(consumption=values[-1]))
            report.copied["accounting"] += 1
    insert(tx, accounting, new, report)
    if new:
        ends = accounting_queries.latest_window(tx)
        accounting_queries.compare_accounts_from(tx, ends + 1)
