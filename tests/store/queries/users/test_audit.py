"""The audit keeps what was written, and shows what was changed since."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.users import user_records
from oarlock.store.queries.users.user_records import AuditEntry
from oarlock.store.tables import audit as rows
from tests.clusters import NOW

ENTRIES = [AuditEntry(NOW + n, "ada" if n % 2 else "root", "", "queues.stop", "socket", f"{n}") for n in range(1, 5)]


@pytest.fixture
def written(tx: Tx) -> Tx:
    for entry in ENTRIES:
        user_records.add_audit(tx, entry)
    return tx


def _numbers(tx: Tx) -> list[int]:
    return [one.id for one in user_records.audit_entries(tx, most=10)]


def _told(tx: Tx, **which: Any) -> list[AuditEntry]:
    return [replace(one, id=0) for one in user_records.audit_entries(tx, **{"most": 10, **which})]


def test_changes_are_listed_by_user_date_and_number(written: Tx):
    assert _told(written) == ENTRIES
    assert _told(written, most=2) == ENTRIES[2:]
    assert _told(written, user="ada") == ENTRIES[::2]
    assert _told(written, since=NOW + 4) == ENTRIES[3:]
    assert user_records.broken_audit(written) is None


def test_changes_of_a_job_are_those_that_name_it(tx: Tx):
    told = ['{"ids":[7],"where":null}', '{"ids":[17,70]}', '{"ids":[1,7,9]}', '{"names":["7"]}', '{"ids":[8,7']
    for verb, asked in [*(("jobs.delete", one) for one in told), ("resources.state", '{"ids":[7]}')]:
        user_records.add_audit(tx, AuditEntry(NOW, "root", "", verb, "socket", asked))
    assert [one.asked for one in user_records.audit_entries(tx, job=7, most=10)] == [told[0], told[2]]
    assert [one.asked for one in user_records.audit_entries(tx, job=8, most=10)] == [told[4]]
    assert [one.asked for one in user_records.audit_entries(tx, job=7, most=1)] == [told[2]]


@pytest.mark.parametrize("column", ["date", "user_name", "behalf", "verb", "channel", "asked", "refused", "chain"])
def test_a_row_that_was_edited_shows(written: Tx, column: str):
    second = _numbers(written)[1]
    value = 7 if column == "date" else "other"
    written.execute(update(rows).where(rows.c.id == second).values({column: value}))
    assert user_records.broken_audit(written) == second


def test_a_row_of_an_older_version_is_whole_although_it_has_no_reason(written: Tx):
    first, *_ = user_records.audit_entries(written, most=10)
    fields = [first.date, first.user, first.behalf, first.verb, first.channel, first.asked]
    chain = hashlib.sha256(json.dumps(["", first.id, *fields], separators=(",", ":")).encode()).hexdigest()
    assert written.execute(select(rows.c.chain).order_by(rows.c.id)).scalars().first() == chain


@pytest.mark.parametrize("gone", [0, 2])
def test_a_row_that_was_taken_out_shows(written: Tx, gone: int):
    numbers = _numbers(written)
    written.execute(delete(rows).where(rows.c.id == numbers[gone]))
    assert user_records.broken_audit(written) == numbers[gone + 1]


def test_a_change_that_fails_leaves_no_row_and_no_hole_in_the_chain(database: Database):
    def failing(tx: Tx) -> None:
        user_records.add_audit(tx, ENTRIES[1])
        raise KeyError

    database.write(lambda tx: user_records.add_audit(tx, ENTRIES[0]))
    with pytest.raises(KeyError):
        database.write(failing)
    database.write(lambda tx: user_records.add_audit(tx, ENTRIES[2]))
    with database.read() as tx:
        assert ([one.asked for one in user_records.audit_entries(tx, most=9)], user_records.broken_audit(tx)) == (
            ["1", "3"],
            None,
        )
