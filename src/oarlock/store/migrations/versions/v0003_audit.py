"""Who changed what."""

from alembic import op
from sqlalchemy import Index

from oarlock.store.tables.columns import key, number, text

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "audit",
        key("id"),
        number("date"),
        text("user_name"),
        text("behalf"),
        text("verb"),
        text("channel"),
        text("asked"),
        text("chain"),
        Index("ix_audit_user_name", "user_name"),
    )
