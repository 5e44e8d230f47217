"""Events: what happened to jobs and nodes, and which of it still needs an action; and notices of it to users."""

import logging
from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Delete, Select, Update, delete, func, literal_column, select, update

from oarlock.model.event import FOR_ADMINISTRATORS, Event, EventType, event_type
from oarlock.store.engine import journal
from oarlock.store.engine.rows import bind_ids, id_in, insert_rows
from oarlock.store.engine.tx import Tx, allocate_ids
from oarlock.store.tables import event_log_hostnames, event_logs, notices

_NO_JOB = 0


class EventRow(NamedTuple):
    """An event as it is stored; `to_check`: it still needs an action."""

    id: int
    event: Event
    to_check: bool


def add(tx: Tx, events: Sequence[Event]) -> list[int]:
    """Insert events, with the hosts they name."""
    numbers = allocate_ids(tx, event_logs.c.event_id, len(events))
    insert_rows(
        tx,
        "event_logs",
        [column.name for column in event_logs.columns],
        [
            (number, e.type.value, e.job or _NO_JOB, e.at, e.description, "YES" if e.to_check else "NO")
            for number, e in zip(numbers, events, strict=True)
        ],
    )
    hosts = [(number, host) for number, e in zip(numbers, events, strict=True) for host in dict.fromkeys(e.hosts)]
    insert_rows(tx, "event_log_hostnames", ["event_id", "hostname"], hosts)
    for event in events:
        _note(tx, event)
    return list(numbers)


def _note(tx: Tx, event: Event) -> None:
    """Log an event: as a warning if it needs an administrator, with the jobs if it is about one only."""
    about: dict[str, object] = {"event": event.type.value}
    if event.job:
        about["job"] = event.job
    if event.hosts:
        about["node"] = ",".join(dict.fromkeys(event.hosts))
    about["why"] = event.description
    if event.type in FOR_ADMINISTRATORS:
        journal.note(tx, journal.SITE, "event", about, level=logging.WARNING)
    else:
        journal.note(tx, journal.JOBS if event.job else journal.SITE, "event", about)


def to_check(tx: Tx) -> list[EventRow]:
    """Return the events that somebody still has to act on, oldest first."""
    return _event_rows(tx, select(event_logs).where(event_logs.c.to_check == literal_column("'YES'")))


def check_off(tx: Tx, ids: Collection[int]) -> None:
    """Mark events as acted on."""
    tx.execute(_check_off(tx.dialect.name), bind_ids(tx, ids))


@cache
def _check_off(engine: str) -> Update:
    return update(event_logs).where(id_in(engine, event_logs.c.event_id)).values(to_check="NO")


def of_jobs(tx: Tx, ids: Collection[int]) -> list[EventRow]:
    """Return the events of jobs, oldest first."""
    query = select(event_logs).where(
        id_in(tx.dialect.name, event_logs.c.job_id), event_logs.c.job_id != literal_column("0")
    )
    return _event_rows(tx, query, bind_ids(tx, ids))


def after(tx: Tx, number: int, types: Collection[EventType], *, most: int) -> list[EventRow]:
    """Return the first events of some types that were written after one, oldest first."""
    later, wanted = event_logs.c.event_id > number, event_logs.c.type.in_([kind.value for kind in types])
    return _event_rows(tx, select(event_logs).where(later, wanted).order_by("event_id").limit(most))


def last(tx: Tx) -> int:
    """Return the number of the newest event; 0 if there is none."""
    return tx.execute(select(func.max(event_logs.c.event_id))).scalar() or 0


def of_hosts(
    tx: Tx, hosts: Collection[str] | None = None, *, since: int = 0, most: int | None = None
) -> list[EventRow]:
    """Return the events that name one of these hosts (any host, if none is given) from a date on; the last `most`."""
    named = select(event_log_hostnames.c.event_id)
    if hosts is not None:
        named = named.where(event_log_hostnames.c.hostname.in_(hosts))
    wanted = select(event_logs).where(event_logs.c.event_id.in_(named), event_logs.c.date >= since)
    return _event_rows(tx, wanted.order_by(event_logs.c.event_id.desc()).limit(most))


def dates_of_hosts(tx: Tx, kind: EventType, hosts: Collection[str], *, since: int) -> list[tuple[str, int]]:
    """Return host and date of each event of a type that names one of these hosts, from a date on."""
    named = event_log_hostnames.c
    query = select(named.hostname, event_logs.c.date).where(
        event_logs.c.event_id == named.event_id,
        event_logs.c.type == kind.value,
        event_logs.c.date >= since,
        named.hostname.in_(hosts),
    )
    return [(host, date) for host, date in tx.execute(query)]


def _event_rows(tx: Tx, query: Select[Any], bound: dict[str, Any] | None = None) -> list[EventRow]:
    rows = sorted(tx.execute(query, bound or {}), key=attrgetter("event_id"))
    hosts = defaultdict(list)
    named = (
        select(event_log_hostnames).where(id_in(tx.dialect.name, event_log_hostnames.c.event_id)).order_by("hostname")
    )
    for number, host in tx.execute(named, bind_ids(tx, [row.event_id for row in rows])):
        hosts[number].append(host)
    return [
        EventRow(
            row.event_id,
            Event(event_type(row.type), row.date, row.description, row.job_id or None, tuple(hosts[row.event_id])),
            row.to_check == "YES",
        )
        for row in rows
    ]


_NOTICE_COLUMNS = [column.name for column in notices.columns]
_PENDING_NOTICES = select(notices).order_by(notices.c.notice_id)


class PendingNotice(NamedTuple):
    """A notice: its job and user, how it is sent, and its text."""

    job: int
    user: str
    name: str
    how: str
    tag: str
    comment: str


def add_notices(tx: Tx, new: Sequence[PendingNotice]) -> range:
    """Store notices until they are sent; return their numbers."""
    numbers = allocate_ids(tx, notices.c.notice_id, len(new))
    insert_rows(
        tx, "notices", _NOTICE_COLUMNS, [(number, *notice) for number, notice in zip(numbers, new, strict=True)]
    )
    return numbers


def pending_notices(tx: Tx) -> dict[int, PendingNotice]:
    """Return the notices that were not sent, oldest first."""
    return {row[0]: PendingNotice(*row[1:]) for row in tx.execute(_PENDING_NOTICES)}


def remove_notices(tx: Tx, numbers: Collection[int]) -> None:
    """Delete notices that were sent."""
    tx.execute(_remove_notices(tx.dialect.name), bind_ids(tx, numbers))


@cache
def _remove_notices(engine: str) -> Delete:
    return delete(notices).where(id_in(engine, notices.c.notice_id))
