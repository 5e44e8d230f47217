"""Mails that wait for the mail server."""

from alembic import op
from sqlalchemy import Index

from oarlock.store.tables.columns import key, number, partial_index, text

revision = "9"
down_revision = "8"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "mails",
        key("mail_id"),
        number("date"),
        number("due"),
        text("user_name"),
        text("rule"),
        text("address"),
        text("subject"),
        text("body"),
        text("html"),
        number("job_id"),
        number("tries"),
        number("sent"),
        text("problem"),
        Index(None, "user_name"),
        partial_index("ix_mails_due", "due", "sent = 0"),
    )
