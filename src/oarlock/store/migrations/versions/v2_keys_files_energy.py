"""Job keys, stage-in, scopes of tokens, lists of CPUs, the energy ledger, and the manual's remaining indexes."""

from alembic import op
from sqlalchemy import Column, Double, Index
from sqlalchemy import text as sql

from oarlock.store.tables.columns import TEXT_BY_CODE_POINT, key, number, optional_number, text, text_key

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Bring the tables of the first version up to date."""
    _lists_of_cpus()
    _columns()
    _indexes()
    _energy()


def _lists_of_cpus() -> None:
    """Turn `cpuset` into a text; every number stays, as its digits."""
    if op.get_bind().dialect.name == "sqlite":
        _rebuild_resources()
    else:
        op.alter_column("resources", "cpuset", server_default=None)
        op.alter_column("resources", "cpuset", type_=TEXT_BY_CODE_POINT, postgresql_using="cpuset::text")
        op.alter_column("resources", "cpuset", server_default="0")


def _rebuild_resources() -> None:
    """Make the table again with another type of one column: SQLite cannot alter a type.

    The definition is its own, so that the site's properties, the checked words and the order of columns stay.
    """
    connection = op.get_bind()
    stored = connection.exec_driver_sql("SELECT type, sql FROM sqlite_master WHERE tbl_name = 'resources'").all()
    [definition] = [row.sql for row in stored if row.type == "table"]
    indexes = [row.sql for row in stored if row.type == "index" and row.sql]
    rebuilt = definition.replace("cpuset INTEGER ", "cpuset TEXT ", 1)
    connection.exec_driver_sql(rebuilt.replace("resources", "resources_with_lists", 1))
    connection.exec_driver_sql("INSERT INTO resources_with_lists SELECT * FROM resources")
    connection.exec_driver_sql("DROP TABLE resources")
    connection.exec_driver_sql("ALTER TABLE resources_with_lists RENAME TO resources")
    for index in indexes:
        connection.exec_driver_sql(index)


def _columns() -> None:
    # Alembic adds the check of a column in a statement of its own, which SQLite does not have.
    collation = "" if op.get_bind().dialect.name == "sqlite" else ' COLLATE "C"'
    op.execute(
        sql(
            f"ALTER TABLE challenges ADD COLUMN imported TEXT{collation} DEFAULT 'NO' NOT NULL "
            "CONSTRAINT ck_challenges_imported CHECK (imported IN ('YES', 'NO'))"
        )
    )
    for column in (text("sha256"), text("user_name"), optional_number("uid"), number("used")):
        op.add_column("files", column)
    op.add_column("tokens", text("scope"))


def _indexes() -> None:
    op.create_index("ix_challenges_challenge", "challenges", ["challenge"])
    op.create_index("ix_files_sha256", "files", ["sha256"])
    op.create_index("ix_resource_logs_attribute", "resource_logs", ["attribute"])
    op.create_index("ix_job_state_logs_job_state", "job_state_logs", ["job_state"])
    for column in ("window_stop", "accounting_project", "queue_name", "consumption_type"):
        op.create_index(f"ix_accounting_{column}", "accounting", [column])
    for name, table, column, where in (
        ("ix_resources_expiry_date", "resources", "expiry_date", "expiry_date > 0"),
        ("ix_resource_logs_states", "resource_logs", "date_stop", "attribute = 'state'"),
    ):
        op.create_index(name, table, [column], sqlite_where=sql(where), postgresql_where=sql(where))


def _energy() -> None:
    op.create_table(
        "energy_days",
        text_key("network_address"),
        key("day"),
        text_key("method"),
        number("meter_mj"),
        number("idle_mj"),
        number("not_assigned_mj"),
        Column("seconds", Double(), nullable=False, server_default="0"),
        Index(None, "day"),
    )
    op.create_table(
        "energy_shares",
        text_key("network_address"),
        key("day"),
        key("job_id"),
        number("energy_mj"),
        Index(None, "job_id"),
        Index(None, "day"),
    )
