"""Pins of jobs of other resource managers, whose numbers are not in `jobs`."""

from alembic import op
from sqlalchemy import Index

from oarlock.store.tables.columns import key, number, text

revision = "8"
down_revision = "7"


def upgrade() -> None:
    """Drop the reference of the table to `jobs`; the pins stay."""
    if op.get_bind().dialect.name != "sqlite":
        op.drop_constraint("fk_archive_pins_job_id", "archive_pins", type_="foreignkey")
        return
    # SQLite cannot drop it: the table is made again.
    op.drop_index("ix_archive_pins_user_name", "archive_pins")
    op.rename_table("archive_pins", "archive_pins_of_jobs")
    op.create_table("archive_pins", key("job_id"), text("user_name"), number("date"), Index(None, "user_name"))
    op.execute(
        "INSERT INTO archive_pins (job_id, user_name, date) SELECT job_id, user_name, date FROM archive_pins_of_jobs"
    )
    op.drop_table("archive_pins_of_jobs")
