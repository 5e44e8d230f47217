"""Sessions of browsers, for the portal."""

from alembic import op
from sqlalchemy import Index

from oarlock.store.tables.columns import enum_text, number, optional_number, text, text_key

revision = "6"
down_revision = "5"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "browser_sessions",
        text_key("session_hash"),
        text("user_name"),
        optional_number("uid"),
        enum_text("purpose", ("link", "session"), "session"),
        number("created"),
        number("expires"),
        text("agent"),
        Index(None, "user_name"),
    )
