"""Jobs whose file of measurements is neither thinned nor deleted."""

from alembic import op
from sqlalchemy import ForeignKeyConstraint, Index

from oarlock.store.tables.columns import key, number, text

revision = "7"
down_revision = "6"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "archive_pins",
        key("job_id"),
        text("user_name"),
        number("date"),
        Index(None, "user_name"),
        ForeignKeyConstraint(["job_id"], ["jobs.job_id"]),
    )
