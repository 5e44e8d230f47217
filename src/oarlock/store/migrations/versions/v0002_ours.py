"""What we keep beside the manual's tables."""

from alembic import op
from sqlalchemy import Column, Double, ForeignKeyConstraint, Index

from oarlock.store.tables.columns import flag, key, number, optional_number, partial_index, text, text_key

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the tables."""
    _attempts()
    _site()
    _measurements()


def _attempts() -> None:
    op.create_table(
        "attempts",
        key("job_id"),
        key("number"),
        text("secret_hash"),
        number("opened_us"),
        optional_number("started_us"),
        optional_number("ended_us"),
        optional_number("closed_us"),
        optional_number("exit_code"),
        text("outcome"),
        partial_index("ix_attempts_live", "job_id", "closed_us IS NULL"),
        ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
    )
    op.create_table(
        "attempt_nodes",
        key("job_id"),
        key("number"),
        key("position"),
        text("network_address"),
        text("boot_id"),
        Index(None, "network_address"),
        ForeignKeyConstraint(["job_id", "number"], ["attempts.job_id", "attempts.number"]),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "request_ids",
        text_key("user_name"),
        text_key("request_id"),
        text("verb"),
        text("answer"),
        number("date"),
        Index(None, "date"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "walltime_change",
        key("job_id"),
        number("pending"),
        flag("force"),
        flag("delay_next_jobs"),
        number("granted"),
        number("granted_with_force"),
        number("granted_with_delay_next_jobs"),
        ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
    )


def _site() -> None:
    op.create_table(
        "quotas",
        key("position"),
        text("queue_name", "*"),
        text("project", "*"),
        text("job_type", "*"),
        text("user_name", "*"),
        number("resources", -1),
        number("jobs", -1),
        number("resource_seconds", -1),
    )
    op.create_table(
        "tokens",
        text_key("token_hash"),
        text("user_name"),
        text("label"),
        number("created"),
        number("expires"),
        Index(None, "user_name"),
    )


def _measurements() -> None:
    op.create_table(
        "job_summaries",
        key("job_id"),
        number("date"),
        Column("cpu_seconds", Double()),
        optional_number("memory_peak_bytes"),
        optional_number("read_bytes"),
        optional_number("written_bytes"),
        Column("energy_joules", Double()),
        Column("gpu_seconds", Double()),
        text("detail", "{}"),
        ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
    )
    op.create_table(
        "monitoring_samples",
        key("job_id"),
        text_key("network_address"),
        key("date"),
        text_key("metric"),
        Column("value", Double(), nullable=False),
        ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
    )
