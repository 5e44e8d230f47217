"""Links by which jobs are shared, lists of jobs that users keep, and notices to all."""

from alembic import op
from sqlalchemy import Index

from oarlock.store.tables.columns import key, number, optional_number, text, text_key

revision = "14"
down_revision = "13"


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "job_shares",
        text_key("share_hash"),
        number("job_id"),
        text("user_name"),
        optional_number("uid"),
        number("created"),
        number("expires"),
        number("uses"),
        number("last_used"),
        Index(None, "user_name"),
    )
    op.create_table("saved_views", text_key("user_name"), text_key("name"), text("query"), number("date"))
    op.create_table("site_notices", key("notice_id"), number("date"), number("until"), text("says"), text("author"))


def downgrade() -> None:
    """Drop the tables."""
    for table in ("site_notices", "saved_views", "job_shares"):
        op.drop_table(table)
