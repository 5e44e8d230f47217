"""What software jobs ran, by day."""

from alembic import op
from sqlalchemy import Column, Double

from oarlock.store.tables.columns import key, number, text_key

revision = "15"
down_revision = "14"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "software_days",
        key("day"),
        text_key("user_name"),
        text_key("project"),
        text_key("kind"),
        text_key("name"),
        number("jobs"),
        Column("core_seconds", Double(), nullable=False, server_default="0"),
        Column("cpu_seconds", Double(), nullable=False, server_default="0"),
    )


def downgrade() -> None:
    """Drop the table."""
    op.drop_table("software_days")
