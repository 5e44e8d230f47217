"""Maintenance windows."""

from alembic import op
from sqlalchemy import Index

from oarlock.store.tables.columns import key, number, text

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "maintenance",
        key("maintenance_id"),
        text("name"),
        number("start_time"),
        number("stop_time"),
        text("properties"),
        text("user_name"),
        Index(None, "stop_time"),
    )
