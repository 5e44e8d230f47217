"""A condition means the same to Python, SQLite and PostgreSQL."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import column, select, table
from sqlalchemy.exc import DatabaseError

from oarlock.lang.where import STORED, check, parse, truth
from oarlock.model.condition import Condition
from oarlock.model.errors import DatabaseRefused, TooSlow
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import open_database
from oarlock.store.engine.rows import insert_rows
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import condition_sql, properties, resources
from oarlock.store.queries.job import jobs, new_jobs
from oarlock.store.tables.columns import INTEGER, TEXT_BY_CODE_POINT
from tests.clusters import NOW
from tests.lang.trees import TYPES, conditions, rows
from tests.store.cluster import new

_ROWS = table(
    "looked_at",
    column("id", INTEGER),
    *(column(name, TEXT_BY_CODE_POINT if kind is str else INTEGER) for name, kind in TYPES.items()),
)


def _answers(tx: Tx, condition: Condition, looked_at: list[dict[str, Any]]) -> list[bool | None]:
    """Give what the database says of each row: SQL's own TRUE, FALSE and NULL."""
    said = condition_sql.sql_condition(condition, dict(_ROWS.c)).label("said")
    tx.exec_driver_sql("DELETE FROM looked_at")
    insert_rows(tx, "looked_at", ["id", *TYPES], [(n, *(row[t] for t in TYPES)) for n, row in enumerate(looked_at)])
    return [
        None if answer is None else bool(answer) for _, answer in tx.execute(select(_ROWS.c.id, said).order_by("id"))
    ]


@given(conditions(), st.lists(rows(), min_size=1, max_size=8))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_python_and_both_databases_agree(tx: Tx, condition: Condition, looked_at: list[dict[str, Any]]):
    kinds = {int: "BIGINT", str: "VARCHAR(255)" + _COLLATION[tx.dialect.name]}
    columns = ", ".join(f"{name} {kinds[kind]}" for name, kind in TYPES.items())
    tx.exec_driver_sql(f"CREATE TEMPORARY TABLE IF NOT EXISTS looked_at (id BIGINT, {columns})")
    assert _answers(tx, condition, looked_at) == [truth(condition, row) for row in looked_at]


_COLLATION = {"sqlite": "", "postgresql": ' COLLATE "C"'}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("name LIKE 'Node%'", ["Node1"]),
        ("name LIKE 'node_'", ["node1"]),
        ("name LIKE '%[%'", ["a[b]*?"]),
        ("name LIKE '%*_'", ["a[b]*?"]),
        ("name NOT LIKE 'node%'", ["Node1", "a[b]*?"]),
        ("name < 'a'", ["Node1"]),
        ("name IN ('node1', 'Node1')", ["Node1", "node1"]),
        ("cpu BETWEEN 0.5 AND 1.5", ["node1"]),
        ("cpu IS NULL OR cpu > 9223372036854775806", ["Node1", "a[b]*?"]),
        ("'b' > 'A' AND name != 'node1'", ["Node1", "a[b]*?"]),
    ],
)
def test_conditions_find_what_they_say(tx: Tx, text: str, found: list[str]):
    properties.add(tx, "name", str)
    resources.add(tx, [{"name": "Node1"}, {"name": "node1", "cpu": 1}, {"name": "a[b]*?", "cpu": 2**63 - 1}], at=NOW)
    types = properties.types(tx)
    numbers = resources.matching(tx, check(parse(text), types), types)
    assert [one.properties["name"] for one in resources.listed(tx, numbers)] == found


def test_a_list_of_a_thousand_values_is_answered(tx: Tx):
    numbers = resources.add(tx, [{"cpu": n} for n in range(1000)], at=NOW)
    types = properties.types(tx)
    text = f"cpu IN ({','.join(str(n) for n in range(0, 2000, 2))})"
    assert resources.matching(tx, check(parse(text, limits=STORED), types), types) == numbers[::2]


def test_conditions_of_users_are_answered_behind_a_fence(database: Database):
    added = database.write(lambda tx: new_jobs.add(tx, [new(name="x"), new(name="Y")]))
    condition = check(parse("job_name LIKE 'x%'"), jobs.VISIBLE)
    with database.ask() as tx:
        assert jobs.matching(tx, condition) == [added[0].id]


@pytest.mark.parametrize(
    "hostile",
    [
        "SELECT command FROM jobs",
        "SELECT job_id FROM jobs WHERE initial_request LIKE 'a%'",
        "SELECT ssh_private_key FROM challenges",
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM tokens)",
        "SELECT randomblob(100000000)",
        "SELECT name FROM sqlite_master",
        "DELETE FROM jobs",
        "ATTACH ':memory:' AS other",
        "PRAGMA query_only = OFF",
    ],
)
def test_the_fence_lets_nothing_else_through(sqlite_path: Path, hostile: str):
    with open_database(sqlite_path) as database:
        with pytest.raises((DatabaseError, DatabaseRefused), match=r"prohibited|not authorized"), database.ask() as tx:
            tx.exec_driver_sql(hostile)
        with database.read() as tx:
            assert tx.exec_driver_sql("SELECT count(*) FROM challenges").scalar_one() == 0  # the fence is gone again


def test_a_condition_that_takes_too_long_is_refused(database: Database):
    slow = {
        "sqlite": "SELECT a.resource_id FROM resources a, resources b, resources c, resources d",
        "postgresql": "SELECT pg_sleep(30)",
    }
    database.write(lambda tx: resources.add(tx, [{}] * 300, at=NOW))
    with pytest.raises(TooSlow, match=r"not answered within 0\.1 s"), database.ask(seconds=0.1) as tx:
        tx.exec_driver_sql(slow[database.engine_name]).fetchall()
    with database.read() as tx:
        assert len(resources.listed(tx)) == 300
