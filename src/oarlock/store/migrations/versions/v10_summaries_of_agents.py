"""Summaries of jobs of other resource managers, whose numbers are not in `jobs`."""

from typing import Any

from alembic import op
from sqlalchemy import Column, Double

from oarlock.store.tables.columns import key, number, optional_number, partial_index, text

revision = "10"
down_revision = "9"

_OLD = "job_summaries_of_jobs"


def upgrade() -> None:
    """Drop the reference of the table to `jobs`; the summaries stay."""
    if op.get_bind().dialect.name != "sqlite":
        op.drop_constraint("fk_job_summaries_job_id", "job_summaries", type_="foreignkey")
        return
    # SQLite cannot drop it: the table is made again.
    columns: list[Column[Any]] = [
        key("job_id"),
        number("date"),
        Column("cpu_seconds", Double()),
        optional_number("memory_peak_bytes"),
        optional_number("read_bytes"),
        optional_number("written_bytes"),
        Column("energy_joules", Double()),
        Column("gpu_seconds", Double()),
        text("detail", "{}"),
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
    ]
    names = ", ".join(column.name for column in columns)
    op.drop_index("ix_job_summaries_booked", "job_summaries")
    op.rename_table("job_summaries", _OLD)
    op.create_table("job_summaries", *columns, partial_index("ix_job_summaries_booked", "job_id", "booked = 0"))
    op.execute(f"INSERT INTO job_summaries ({names}) SELECT {names} FROM {_OLD}")  # noqa: S608 - names of ours
    op.drop_table(_OLD)
