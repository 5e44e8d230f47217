"""Summaries with what lists are sorted by, the sums of days, and how long the energy of a job was measured."""

from alembic import op
from sqlalchemy import Column, Double
from sqlalchemy import text as sql

from oarlock.store.tables.columns import key, number, optional_number, text_key

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Add the columns and the table; what nodes reported of jobs that are over is booked by the server later."""
    for column in (
        Column("run_seconds", Double()),
        optional_number("walltime"),
        Column("core_seconds", Double()),
        optional_number("memory_asked_bytes"),
        optional_number("memory_own_mean_bytes"),
        optional_number("memory_own_peak_bytes"),
        Column("gpu_busy_seconds", Double()),
        number("samples"),
        Column("coverage", Double()),
        number("booked"),
    ):
        op.add_column("job_summaries", column)
    where = sql("booked = 0")
    op.create_index("ix_job_summaries_booked", "job_summaries", ["job_id"], sqlite_where=where, postgresql_where=where)
    op.create_table(
        "usage_days",
        key("day"),
        text_key("user_name"),
        text_key("project"),
        text_key("queue_name"),
        number("jobs"),
        *(_sum(name) for name in _SUMS),
    )
    op.add_column("energy_shares", _sum("seconds"))


_SUMS = (
    "core_seconds", "core_busy_seconds", "memory_asked_byte_seconds", "memory_used_byte_seconds", "gpu_seconds",
    "gpu_busy_seconds", "energy_joules",
)  # fmt: skip


def _sum(name: str) -> Column[float]:
    return Column(name, Double(), nullable=False, server_default="0")
