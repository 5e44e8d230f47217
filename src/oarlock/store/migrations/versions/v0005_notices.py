"""Notices that are still to be sent."""

from alembic import op

from oarlock.store.tables.columns import key, number, text

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "notices",
        key("notice_id"),
        number("job_id"),
        text("user_name"),
        text("job_name"),
        text("how"),
        text("tag"),
        text("comment"),
    )
