"""Resources: what the cluster has, its properties and their history."""

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Select, TableClause, bindparam, delete, func, literal_column, or_, select, update

from oarlock.lang.limits import closest, short
from oarlock.model.condition import Condition
from oarlock.model.errors import BadPropertyValue, ResourceInUse, SystemColumn, UnknownResource
from oarlock.model.resource import (
    CPUS_PROPERTY,
    DEFAULT_TYPE,
    NODE_NAME,
    STATE_NUMBER,
    NextState,
    Resource,
    ResourceState,
    Value,
    parse_cpus,
)
from oarlock.model.submission_errors import TypesDiffer, UnknownProperty
from oarlock.store.engine import journal
from oarlock.store.engine.rows import BoundRows, bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.queries.cluster import condition_sql, properties
from oarlock.store.tables import assigned_resources, resource_logs, resources
from oarlock.store.tables.columns import INTEGER, TEXT_BY_CODE_POINT

KEPT = properties.KEPT
_CPUS_HINT = "Write CPU numbers of the node: `3`, `0,32` or `0-3`."
_INTEGERS = range(-(2**63), 2**63)
_LAST_CHANGE = select(func.max(resource_logs.c.resource_log_id))
_CHANGES = BoundRows("changed", id=INTEGER, attribute=TEXT_BY_CODE_POINT)


def listed(tx: Tx, ids: Collection[int] | None = None) -> list[Resource]:
    """Return resources by increasing number: those asked for (`UnknownResource` if one is missing), or all."""
    columns = properties.types(tx)
    resource = properties.clause(columns)
    if ids is None:
        rows = tx.execute(select(resource).order_by(resource.c.resource_id))
    else:
        rows = tx.execute(_listed(tx.dialect.name, resource), bind_ids(tx, ids))
    listed_resources = [Resource(row[0], dict(zip(columns, row, strict=True))) for row in rows]
    _refuse_missing(ids or (), {resource_found.id for resource_found in listed_resources})
    return listed_resources


@lru_cache(maxsize=16)
def _listed(engine: str, resource: TableClause) -> Select[Any]:
    return select(resource).where(id_in(engine, resource.c.resource_id)).order_by(resource.c.resource_id)


def version(tx: Tx) -> int:
    """Return a number that grows whenever a resource is added, or a property or the state of one changes."""
    return tx.execute(_LAST_CHANGE).scalar_one() or 0


def numbers_by_node(tx: Tx, chosen: Collection[int] | None = None) -> dict[str, list[int]]:
    """Return the numbers of the resources of type default, by node: all of them, or the chosen ones."""
    query = select(resources.c.network_address, resources.c.resource_id).where(resources.c.type == DEFAULT_TYPE)
    by_node: dict[str, list[int]] = {}
    for node, number in tx.execute(query.order_by(resources.c.resource_id)).all():
        if chosen is None or number in chosen:
            by_node.setdefault(node, []).append(number)
    return by_node


def matching(tx: Tx, condition: Condition, types: Mapping[str, type]) -> list[int]:
    """Return the numbers of resources that fulfil a condition, in order.

    `types` are the columns (`properties.types`) that the condition was checked with; both are read before, so that
    this alone runs inside `Database.ask`.
    """
    resource = properties.clause(types)
    query = (
        select(resource.c.resource_id)
        .where(condition_sql.sql_condition(condition, dict(resource.c)))
        .order_by(resource.c.resource_id)
    )
    return list(tx.execute(query).scalars())


def add(tx: Tx, new: Sequence[Mapping[str, Value]], *, at: int) -> list[int]:
    """Add resources with these properties: `network_address`, `type`, the `state` if it is not Alive, and so on."""
    types = properties.types(tx)
    new = [_normal(values) for values in new]
    for values in new:
        _check(values, types, kept=KEPT - {"state"})
    ids = allocate_ids(tx, resources.c.resource_id, len(new), beside=(resource_logs.c.resource_id,))
    given = [{"state": ResourceState.ALIVE.value, **values} for values in new]
    rows = [
        {"resource_id": number, "state_num": STATE_NUMBER[ResourceState(str(values["state"]))], **values}
        for number, values in zip(ids, given, strict=True)
    ]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    defaults = {name: _default(name) for name in columns}
    insert_rows(tx, "resources", columns, [[{**defaults, **row}[name] for name in columns] for row in rows])
    _log(
        tx,
        [(number, name, value) for number, values in zip(ids, given, strict=True) for name, value in values.items()],
        at=at,
    )
    for node, count in Counter(str(values.get("network_address") or "") for values in given).items():
        journal.note(tx, journal.SITE, "resources added", {"node": node, "resources": count})
    return list(ids)


def set_properties(tx: Tx, ids: Collection[int], values: Mapping[str, Value], *, at: int) -> dict[str, int]:
    """Set these values; what really changes leaves a line of history. Return how many resources that was, by name."""
    types = properties.types(tx)
    given, values = values, _normal(values)
    _check(values, types, kept=KEPT)
    differing = [
        (resource, name, value)
        for resource in listed(tx, ids)
        for name, value in values.items()
        if resource.properties[name] != value
    ]
    changed = [(resource.id, name, value) for resource, name, value in differing]
    if changed:
        resource = properties.clause(types)
        tx.execute(
            update(resource).where(id_in(tx.dialect.name, resource.c.resource_id)).values(dict(values)),
            bind_ids(tx, ids),
        )
        _log(tx, changed, at=at)
    counts = Counter((_node(resource), name, value) for resource, name, value in differing)
    for (node, name, new), count in counts.items():
        about = {"node": node, "property": name, "value": new, "resources": count}
        journal.note(tx, journal.SITE, "property changed", about)
    updated = Counter(name for _, name, _ in changed)
    return {name: updated[properties.column_of(name)] for name in given}


def set_state(tx: Tx, ids: Collection[int], state: ResourceState, *, at: int, by_check: bool = False) -> list[int]:
    """Set the state of resources; return those that were not in it. `by_check`: the node check decided.

    A state requested meanwhile is cleared.
    """
    differing = [resource for resource in listed(tx, ids) if resource.properties["state"] != state.value]
    changed = [resource.id for resource in differing]
    decided = "YES" if by_check else "NO"
    tx.execute(
        update(resources)
        .where(id_in(tx.dialect.name, resources.c.resource_id))
        .values(
            state=state.value,
            state_num=STATE_NUMBER[state],
            finaud_decision=decided,
            next_state=NextState.UNCHANGED.value,
            next_finaud_decision="NO",
        ),
        bind_ids(tx, ids),
    )
    _log(tx, [(number, "state", state.value) for number in changed], at=at, by_check=by_check)
    level = logging.WARNING if state is ResourceState.SUSPECTED else logging.INFO
    counts = Counter((_node(resource), resource.properties["state"]) for resource in differing)
    for (node, was), count in counts.items():
        about = {"node": node, "state": state.value, "was": was, "resources": count}
        journal.note(tx, journal.SITE, "node state changed", about, level=level)
    return changed


def set_priorities(tx: Tx, priorities: Mapping[int, int]) -> None:
    """Set `scheduler_priority`: 0 where it is not given. It is kept by the system, so that no history is written."""
    resource = resources.c
    stored: dict[int, int] = dict(tuple(row) for row in tx.execute(_PRIORITIES))
    changed: dict[int, list[int]] = {}
    for number in stored.keys() | priorities.keys():
        if (value := priorities.get(number, 0)) != stored.get(number, 0):
            changed.setdefault(value, []).append(number)
    for value, ids in changed.items():
        where = id_in(tx.dialect.name, resource.resource_id)
        tx.execute(update(resources).where(where).values(scheduler_priority=value), bind_ids(tx, ids))


_PRIORITIES = select(resources.c.resource_id, resources.c.scheduler_priority).where(
    resources.c.scheduler_priority != literal_column("0")
)


def _node(resource: Resource) -> str:
    return str(resource.properties["network_address"] or "")


def request_state(tx: Tx, ids: Collection[int], state: NextState, *, by_check: bool = False) -> None:
    """Request a state; the server applies it soon (`requested_states`, then `set_state`)."""
    listed(tx, ids)
    tx.execute(
        update(resources)
        .where(id_in(tx.dialect.name, resources.c.resource_id))
        .values(next_state=state.value, next_finaud_decision="YES" if by_check else "NO"),
        bind_ids(tx, ids),
    )


def requested_states(tx: Tx) -> list[tuple[int, NextState, bool]]:
    """Return the state changes requested for resources: number, state, and whether the node check requested it."""
    rows = tx.execute(
        select(resources.c.resource_id, resources.c.next_state, resources.c.next_finaud_decision)
        .where(resources.c.next_state != literal_column("'UnChanged'"))
        .order_by(resources.c.resource_id)
    )
    return [(number, NextState(state), by_check == "YES") for number, state, by_check in rows]


def sizes(tx: Tx) -> dict[str, int]:
    """Return how many resources of the default type each node has."""
    return dict(tuple(row) for row in tx.execute(_SIZES))


_SIZES = (
    select(resources.c.network_address, func.count())
    .where(resources.c.type == DEFAULT_TYPE)
    .group_by(resources.c.network_address)
)


def values_on_nodes(tx: Tx, name: str) -> dict[str, set[Value]]:
    """Return the values that a property has on the resources of each node, of whatever type they are."""
    resource = properties.clause(properties.types(tx))
    rows = tx.execute(
        select(resource.c.network_address, resource.c[name]).where(resource.c[name].is_not(None)).distinct()
    )
    by_node: dict[str, set[Value]] = {}
    for node, value in rows:
        by_node.setdefault(node, set()).add(value)
    return by_node


def expired(tx: Tx, *, now: int) -> dict[str, list[int]]:
    """Return the Alive resources whose `expiry_date` has passed, by node; 0 is no date."""
    by_node: dict[str, list[int]] = {}
    for node, number in tx.execute(_EXPIRED, {"now": now}):
        by_node.setdefault(node, []).append(number)
    return by_node


_EXPIRED = (
    select(resources.c.network_address, resources.c.resource_id)
    .where(
        resources.c.expiry_date > literal_column("0"),
        resources.c.expiry_date < bindparam("now"),
        resources.c.state == ResourceState.ALIVE.value,
    )
    .order_by(resources.c.network_address, resources.c.resource_id)
)


def undated_desktops(tx: Tx) -> list[tuple[int, str]]:
    """Return the Alive resources of desktops without an `expiry_date`: number and node."""
    return [(number, node) for number, node in tx.execute(_UNDATED)]


_UNDATED = (
    select(resources.c.resource_id, resources.c.network_address)
    .where(
        resources.c.desktop_computing == literal_column("'YES'"),
        resources.c.state == ResourceState.ALIVE.value,
        resources.c.expiry_date == literal_column("0"),
    )
    .order_by(resources.c.resource_id)
)


def desktops(tx: Tx) -> set[str]:
    """Return the names of all desktops."""
    return set(tx.execute(_DESKTOPS).scalars())


_DESKTOPS = (
    select(resources.c.network_address).where(resources.c.desktop_computing == literal_column("'YES'")).distinct()
)


def unusable(tx: Tx, ids: Collection[int]) -> set[int]:
    """Return those of the resources on which no job can start now: not Alive, about to leave, or gone."""
    return set(ids) - set(tx.execute(_usable(tx.dialect.name), bind_ids(tx, ids)).scalars())


def removed(tx: Tx, ids: Collection[int]) -> set[int]:
    """Return those of the resources that are Dead, or there no more."""
    return set(ids) - set(tx.execute(_not_dead(tx.dialect.name), bind_ids(tx, ids)).scalars())


@cache
def _not_dead(engine: str) -> Select[Any]:
    return select(resources.c.resource_id).where(
        id_in(engine, resources.c.resource_id), resources.c.state != ResourceState.DEAD.value
    )


@cache
def _usable(engine: str) -> Select[Any]:
    return select(resources.c.resource_id).where(
        id_in(engine, resources.c.resource_id),
        resources.c.state == ResourceState.ALIVE.value,
        resources.c.next_state.in_([NextState.UNCHANGED.value, NextState.ALIVE.value]),
    )


def end_maintenance(tx: Tx, ids: Collection[int], *, at: int) -> None:
    """Restore the cm_availability that resources had before their last maintenance set it to 0.

    Maintenance makes a resource Absent and then sets 0. A 0 that is older than that is the site's own and stays.
    """
    values: dict[int, list[int]] = {}
    for resource in listed(tx, ids):
        if resource.properties["cm_availability"] == 0 and (value := _before_maintenance(tx, resource.id)):
            values.setdefault(value, []).append(resource.id)
    for value, some in values.items():
        set_properties(tx, some, {"cm_availability": value}, at=at)


def _before_maintenance(tx: Tx, number: int) -> int | None:
    """Return the value of cm_availability that the last maintenance of a resource replaced, if it did."""
    log = resource_logs.c
    lines = tx.execute(
        select(log.attribute, log.value, log.resource_log_id)
        .where(log.resource_id == number, log.attribute.in_(["state", "cm_availability"]))
        .order_by(log.resource_log_id)
    ).all()
    absent = [line for attribute, value, line in lines if (attribute, value) == ("state", ResourceState.ABSENT.value)]
    dates = [(line, value) for attribute, value, line in lines if attribute == "cm_availability"]
    if len(dates) < 2 or not absent or dates[-1][0] < absent[-1]:
        return None
    return int(dates[-2][1] or 0)


def states_since(tx: Tx) -> dict[int, int]:
    """Return since when each resource has been in its state."""
    log = resource_logs.c
    rows = tx.execute(
        select(log.resource_id, log.date_start).where(log.date_stop == literal_column("0"), log.attribute == "state")
    )
    return dict(tuple(row) for row in rows)


class AwayInterval(NamedTuple):
    """A resource that was not Alive during [start, stop)."""

    resource_id: int
    start: int
    stop: int
    state: str


def states_between(tx: Tx, since: int, until: int, *, most: int) -> list[AwayInterval]:
    """Return when resources, those removed since included, were not Alive in [since, until); at most `most` intervals.

    Those that began before are whole; one that lasts stops at `until`.
    """
    rows = tx.execute(_STATES_BETWEEN, {"since": since, "until": until, "most": most})
    return [AwayInterval(number, start, stop or until, state) for number, start, stop, state in rows]


_STATES_BETWEEN = (
    select(resource_logs.c.resource_id, resource_logs.c.date_start, resource_logs.c.date_stop, resource_logs.c.value)
    .where(
        resource_logs.c.attribute == literal_column("'state'"),
        resource_logs.c.value != literal_column(f"'{ResourceState.ALIVE.value}'"),
        resource_logs.c.date_start < bindparam("until"),
        or_(resource_logs.c.date_stop == literal_column("0"), resource_logs.c.date_stop > bindparam("since")),
        # Two changes of one second leave an interval of nothing.
        resource_logs.c.date_start != resource_logs.c.date_stop,
    )
    .order_by(resource_logs.c.resource_id, resource_logs.c.resource_log_id)
    .limit(bindparam("most"))
)


def remove(tx: Tx, resource_id: int, *, at: int) -> None:
    """Remove a resource that is Dead and free; its history, and that of jobs that ran on it, stays."""
    [resource] = listed(tx, [resource_id])
    if resource.properties["state"] != ResourceState.DEAD.value:
        raise ResourceInUse(
            f"Resource {resource_id} is {resource.properties['state']}; only a Dead one can be removed.",
            hint=f"First: oarnodesetting -r {resource_id} -s Dead",
        )
    held = assigned_resources.c.assigned_resource_index == literal_column("'CURRENT'")
    if tx.execute(select(assigned_resources).where(assigned_resources.c.resource_id == resource_id, held)).first():
        raise ResourceInUse(f"Resource {resource_id} still belongs to a job.", hint="Wait for its end, or `oardel` it.")
    tx.execute(delete(resources).where(resources.c.resource_id == resource_id))
    present = resource_logs.c.date_stop == 0
    tx.execute(update(resource_logs).where(resource_logs.c.resource_id == resource_id, present).values(date_stop=at))
    journal.note(tx, journal.SITE, "resource removed", {"node": _node(resource), "resource": resource_id})


def _refuse_missing(ids: Iterable[int], existing: Collection[int]) -> None:
    for number in ids:
        if number not in existing:
            raise UnknownResource(number)


def _normal(values: Mapping[str, Value]) -> dict[str, Value]:
    """Return values under the names of their columns; a CPU's number becomes the text that the column holds."""
    named = properties.unaliased(values)
    if isinstance(cpus := named.get(CPUS_PROPERTY), int):
        named[CPUS_PROPERTY] = str(cpus)
    return named


def _check(values: Mapping[str, Value], types: Mapping[str, type], *, kept: Collection[str]) -> None:
    for name, value in values.items():
        if name not in types:
            raise UnknownProperty(f"There is no property `{short(name)}`.", hint=closest(name, types))
        if name in kept:
            raise SystemColumn(
                f"`{name}` is kept by the server; it is not set by hand.", hint="`oarnodesetting -s` changes the state."
            )
        _check_value(name, value, types[name])


def _check_value(name: str, value: Value, kind: type) -> None:
    column = resources.c.get(name)
    if value is None:
        if column is not None and not column.nullable:
            raise BadPropertyValue(f"`{name}` always has a value.", hint=f"Give {_example_of(kind)}.")
    elif not isinstance(value, kind):
        raise TypesDiffer(f"`{name}` holds {_kind(kind)}; {value!r} is none.", hint=f"Give {_example_of(kind)}.")
    elif column is not None and value not in (words := column.info.get("words", (value,))):
        raise BadPropertyValue(f"`{name}` cannot be '{short(str(value))}'.", hint=f"It is one of {', '.join(words)}.")
    elif isinstance(value, str) and (len(value) > properties.LONGEST_TEXT or "\0" in value):
        raise BadPropertyValue(f"The text for `{name}` cannot be stored.", hint="It has at most 255 characters.")
    elif name == "network_address" and value and not NODE_NAME.fullmatch(str(value)):
        raise BadPropertyValue(
            f"`{short(str(value))}` cannot be the name of a node.",
            hint="A name has letters, digits, `.`, `-`, `_` and `:`, and begins with a letter or a digit.",
        )
    elif isinstance(value, int) and value not in _INTEGERS:
        raise BadPropertyValue(f"{value} is too large for `{name}`.", hint="Integers have 64 bits.")
    elif name == CPUS_PROPERTY:
        _check_cpus(name, value)


def _check_cpus(name: str, value: Value) -> None:
    try:
        cpus = parse_cpus(value)
    except ValueError as error:
        raise BadPropertyValue(f"`{name}` cannot be '{short(str(value))}': {error}.", hint=_CPUS_HINT) from None
    if not cpus:
        raise BadPropertyValue(f"`{name}` names no CPU.", hint=_CPUS_HINT)


def _kind(kind: type) -> str:
    return "texts" if kind is str else "integers"


def _example_of(kind: type) -> str:
    return "a text" if kind is str else "a whole number"


def _default(name: str) -> Value:
    """Return the default of a property: that of its column, None for the site's own."""
    column = resources.c.get(name)
    default: Value = None if column is None else column.info.get("default")
    return default


def _log(tx: Tx, changes: Sequence[tuple[int, str, Value]], *, at: int, by_check: bool = False) -> None:
    """Close the history rows that these changes end, and insert the new ones."""
    changed = _CHANGES.table(tx.dialect.name)
    tx.execute(
        update(resource_logs)
        .where(
            resource_logs.c.date_stop == literal_column("0"),
            resource_logs.c.resource_id == changed.c.id,
            resource_logs.c.attribute == changed.c.attribute,
        )
        .values(date_stop=at),
        _CHANGES.parameters(tx, [(number, name) for number, name, _ in changes]),
    )
    lines = allocate_ids(tx, resource_logs.c.resource_log_id, len(changes))
    decided = "YES" if by_check else "NO"
    insert_rows(
        tx,
        "resource_logs",
        [column.name for column in resource_logs.columns],
        [
            (line, number, name, None if value is None else str(value), at, 0, decided)
            for line, (number, name, value) in zip(lines, changes, strict=True)
        ],
    )
