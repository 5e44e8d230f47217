"""The steps lead to exactly the tables that the code declares."""

from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect
from sqlalchemy.engine.interfaces import ReflectedIndex

from oarlock.store import migrations
from oarlock.store.engine.database import Database
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


def test_alembic_finds_nothing_to_change_in_a_migrated_database(tx: Tx):
    context = MigrationContext.configure(tx, opts={"compare_type": True})
    assert compare_metadata(context, metadata) == []


def test_a_migrated_database_is_the_same_as_a_declared_one(request: pytest.FixtureRequest, database: Database):
    """Defaults, checked words and partial indexes included, which Alembic does not compare."""
    if database.engine_name == "sqlite":
        declared = create_engine("sqlite://")
    else:
        postgres: Postgres = request.getfixturevalue("postgres")
        url = postgres.make(template="template0")
        request.addfinalizer(lambda: postgres.drop(url))
        declared = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    metadata.create_all(declared)
    with declared.connect() as expected, database.read() as found:
        assert _form(found) == _form(expected)
    declared.dispose()


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
    page = (Path(__file__).parents[2] / "docs" / "how-it-works" / "database.md").read_text()
    assert [table.name for table in metadata.sorted_tables if f"`{table.name}`" not in page] == []
    assert [name for name in HIDDEN_JOB_COLUMNS if f"`{name}`" not in page] == []


def test_every_step_is_listed_in_its_order():
    config = Config()
    config.set_main_option("script_location", migrations.__path__[0])
    walked = ScriptDirectory.from_config(config).walk_revisions()
    assert tuple(step.revision for step in walked)[::-1] == REVISIONS


def test_a_new_database_has_the_three_queues_of_oar(tx: Tx):
    rows = tx.exec_driver_sql("SELECT queue_name, priority, state FROM queues ORDER BY priority DESC").fetchall()
    assert [tuple(row) for row in rows] == [
        ("admin", 10, "Active"),
        ("default", 2, "Active"),
        ("besteffort", 0, "Active"),
    ]
