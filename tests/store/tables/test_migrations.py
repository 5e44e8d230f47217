"""The steps lead to exactly the tables that the code declares."""

from pathlib import Path
from typing import cast

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, inspect
from sqlalchemy.engine.interfaces import ReflectedIndex

from oarlock.store import migrations
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import migrate
from oarlock.store.engine.tx import Tx
from oarlock.store.migrations import REVISIONS
from oarlock.store.tables import HIDDEN_JOB_COLUMNS, metadata
from tests.databases import Postgres

MANUAL = {
    "accounting",
    "admission_rules",
    "assigned_resources",
    "challenges",
    "event_log_hostnames",
    "event_logs",
    "files",
    "frag_jobs",
    "gantt_jobs_predictions",
    "gantt_jobs_predictions_visu",
    "gantt_jobs_resources",
    "gantt_jobs_resources_visu",
    "job_dependencies",
    "job_resource_descriptions",
    "job_resource_groups",
    "job_state_logs",
    "job_types",
    "jobs",
    "moldable_job_descriptions",
    "queues",
    "resource_logs",
    "resources",
}


INDEXES = {
    "accounting": (
        "window_start", "window_stop", "accounting_user", "queue_name", "accounting_project", "consumption_type",
    ),
    "assigned_resources": ("moldable_job_id",),
    "event_log_hostnames": ("hostname",),
    "event_logs": ("type", "to_check"),
    "files": ("md5sum",),
    "frag_jobs": ("frag_state",),
    "job_dependencies": ("job_id", "job_id_required"),
    "job_resource_descriptions": ("res_job_group_id",),
    "job_resource_groups": ("res_group_moldable_id",),
    "job_state_logs": ("job_id", "job_state"),
    "job_types": ("job_id", "type"),
    "jobs": ("state", "reservation", "queue_name", "accounted", "suspended"),
    "moldable_job_descriptions": ("moldable_job_id",),
    "resource_logs": ("resource_id", "attribute"),
    "resources": ("state", "next_state", "type", "suspended_jobs"),
}  # fmt: skip
"""The fields that the manual calls index fields, by table."""


@pytest.mark.manual(94, 95, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113)
@pytest.mark.manual(96, 109, 110)
def test_every_index_field_of_the_manual_begins_an_index_or_a_key(tx: Tx):
    """Where rows are looked for by a few words only, the index holds those rows (a partial one)."""
    inspector = inspect(tx)
    begun = {
        table: {index["column_names"][0] for index in inspector.get_indexes(table)}
        | set(inspector.get_pk_constraint(table)["constrained_columns"][:1])
        for table in INDEXES
    }
    missing = {table: set(fields) - begun[table] for table, fields in INDEXES.items()}
    assert {table for table, fields in missing.items() if fields} == set(), missing


def test_alembic_finds_nothing_to_change_in_a_migrated_database(tx: Tx):
    context = MigrationContext.configure(tx, opts={"compare_type": True})
    assert compare_metadata(context, metadata) == []


def test_a_migrated_database_is_the_same_as_a_declared_one(request: pytest.FixtureRequest, database: Database):
    """Defaults, checked words and partial indexes included, which Alembic does not compare."""
    declared = _empty_one(request, database.engine_name)
    metadata.create_all(declared)
    with declared.connect() as expected, database.read() as found:
        assert _form(found) == _form(expected)
    declared.dispose()


def test_a_database_of_the_first_form_keeps_its_resources(request: pytest.FixtureRequest, database: Database):
    """A property of the site's own, and the numbers of CPUs, come through the change of the column's type."""
    engine = _empty_one(request, database.engine_name)
    with engine.begin() as connection:
        tx = cast("Tx", connection)
        migrate(tx, "1")
        tx.exec_driver_sql("ALTER TABLE resources ADD COLUMN gpu TEXT")
        tx.exec_driver_sql(
            "INSERT INTO resources (resource_id, network_address, cpuset, gpu) VALUES (7, 'n1', 31, 'a')"
        )
        migrate(tx)
        row = tx.exec_driver_sql("SELECT resource_id, network_address, cpuset, gpu, drain FROM resources").one()
        tx.exec_driver_sql("ALTER TABLE resources DROP COLUMN gpu")
        with database.read() as declared:
            assert _form(tx) == _form(declared)
    engine.dispose()
    assert tuple(row) == (7, "n1", "31", "a", "NO")


def test_pins_stay_when_jobs_of_agents_can_be_pinned_too(request: pytest.FixtureRequest, database: Database):
    engine = _empty_one(request, database.engine_name)
    with engine.begin() as connection:
        tx = cast("Tx", connection)
        migrate(tx, "7")
        tx.exec_driver_sql("INSERT INTO jobs (job_id) VALUES (5)")
        tx.exec_driver_sql("INSERT INTO archive_pins (job_id, user_name, date) VALUES (5, 'ada', 9)")
        migrate(tx)
        tx.exec_driver_sql("INSERT INTO archive_pins (job_id, user_name, date) VALUES (1000000000001, 'bob', 9)")
        rows = tx.exec_driver_sql("SELECT job_id, user_name, date FROM archive_pins ORDER BY job_id").all()
    engine.dispose()
    assert [tuple(row) for row in rows] == [(5, "ada", 9), (1000000000001, "bob", 9)]


def test_summaries_stay_when_jobs_of_agents_get_some_too(request: pytest.FixtureRequest, database: Database):
    engine = _empty_one(request, database.engine_name)
    with engine.begin() as connection:
        tx = cast("Tx", connection)
        migrate(tx, "8")
        tx.exec_driver_sql("INSERT INTO jobs (job_id) VALUES (5)")
        tx.exec_driver_sql(
            "INSERT INTO job_summaries (job_id, date, cpu_seconds, detail, walltime, booked) "
            "VALUES (5, 9, 2.5, 'd', 60, 1)"
        )
        migrate(tx)
        tx.exec_driver_sql("INSERT INTO job_summaries (job_id, date) VALUES (1000000000001, 10)")
        query = "SELECT job_id, date, cpu_seconds, detail, walltime, booked FROM job_summaries ORDER BY job_id"
        rows = tx.exec_driver_sql(query).all()
    engine.dispose()
    assert [tuple(row) for row in rows] == [(5, 9, 2.5, "d", 60, 1), (1000000000001, 10, None, "{}", None, 0)]


@pytest.mark.parametrize("release", migrations.FORMS_OF_RELEASES)
def test_the_way_back_leads_to_the_tables_of_the_release(request: pytest.FixtureRequest, database: Database, release):
    """And forward again: jobs keep what they had, and reasons of states are written out for the older version."""
    form = migrations.form_of(release)
    past, back = _empty_one(request, database.engine_name), _empty_one(request, database.engine_name)
    with past.begin() as expected, back.begin() as connection:
        migrate(cast("Tx", expected), form)
        tx = cast("Tx", connection)
        migrate(tx)
        newest = _form(tx)
        tx.exec_driver_sql("INSERT INTO jobs (job_id, login_host) VALUES (5, 'front')")
        for number, state, why in ((1, "Waiting", "."), (2, "Waiting", "resumed"), (3, "Launching", ".")):
            tx.exec_driver_sql(
                "INSERT INTO job_state_logs (job_state_log_id, job_id, job_state, why)"
                f" VALUES ({number}, 5, '{state}', '{why}')"
            )
        migrate(tx, form)
        assert _form(tx) == _form(cast("Tx", expected))
        rows = tx.exec_driver_sql("SELECT why FROM job_state_logs ORDER BY job_state_log_id").scalars().all()
        assert rows == ["submitted", "resumed", "attempt 1 begins"]
        migrate(tx)
        assert (_form(tx), tx.exec_driver_sql("SELECT job_id FROM jobs").scalar()) == (newest, 5)
    past.dispose()
    back.dispose()


def _empty_one(request: pytest.FixtureRequest, engine_name: str) -> Engine:
    if engine_name == "sqlite":
        return create_engine("sqlite://")
    postgres: Postgres = request.getfixturevalue("postgres")
    url = postgres.make(template="template0")
    request.addfinalizer(lambda: postgres.drop(url))
    return create_engine(url.replace("postgresql:", "postgresql+psycopg:"))


def _form(tx: Tx) -> dict[str, list[str]]:
    looked = inspect(tx)
    return {
        name: [
            *(repr(column) for column in looked.get_columns(name)),
            repr(looked.get_pk_constraint(name)),
            *sorted(repr(key) for key in looked.get_foreign_keys(name)),
            *sorted(_index(index) for index in looked.get_indexes(name)),
            *sorted(repr(check) for check in looked.get_check_constraints(name)),
        ]
        for name in looked.get_table_names()
        if name != "alembic_version"
    }


def _index(found: ReflectedIndex) -> str:
    where = [str(value) for option, value in found.get("dialect_options", {}).items() if option.endswith("_where")]
    return repr((found["name"], found["column_names"], found["unique"], where))


def test_all_text_is_ordered_by_code_point(postgres: Postgres):
    with psycopg.connect(postgres.url("oarlock_template")) as connection:
        rows = connection.execute(
            "SELECT DISTINCT collation_name FROM information_schema.columns "
            "WHERE table_schema = 'public' AND data_type = 'text'"
        ).fetchall()
    assert rows == [("C",)]


def test_the_22_tables_of_the_manual_are_there(tx: Tx):
    assert len(MANUAL) == 22
    assert set(inspect(tx).get_table_names()) >= MANUAL


def test_the_page_about_the_database_names_every_table():
    page = (Path(__file__).parents[3] / "docs" / "how-it-works" / "database.md").read_text()
    assert [table.name for table in metadata.sorted_tables if f"`{table.name}`" not in page] == []
    assert [name for name in HIDDEN_JOB_COLUMNS if f"`{name}`" not in page] == []


def test_every_step_is_listed_in_its_order():
    config = Config()
    config.set_main_option("script_location", migrations.__path__[0])
    walked = ScriptDirectory.from_config(config).walk_revisions()
    assert tuple(step.revision for step in walked)[::-1] == REVISIONS


@pytest.mark.manual(112)
def test_a_new_database_has_the_three_queues_of_oar(tx: Tx):
    rows = tx.exec_driver_sql("SELECT queue_name, priority, state FROM queues ORDER BY priority DESC").fetchall()
    assert [tuple(row) for row in rows] == [
        ("admin", 10, "Active"),
        ("default", 2, "Active"),
        ("besteffort", 0, "Active"),
    ]
