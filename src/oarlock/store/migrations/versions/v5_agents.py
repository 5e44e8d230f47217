"""Jobs and scripts of other resource managers, as agents and pushers send them."""

from alembic import op
from sqlalchemy import Index

from oarlock.store.tables.columns import key, number, optional_number, partial_index, text, text_key

revision = "5"
down_revision = "4"


def upgrade() -> None:
    """Make the two tables."""
    op.create_table(
        "agent_jobs",
        key("number"),
        text("cluster"),
        text("job"),
        text("manager"),
        text("user_name"),
        optional_number("uid"),
        text("account"),
        text("name"),
        text("nodes"),
        number("first_seen"),
        number("last_seen"),
        number("ended"),
        Index(None, "cluster", "job"),
        Index(None, "user_name"),
        partial_index("ix_agent_jobs_ended", "ended", "ended = 0"),
    )
    op.create_table("job_scripts", text_key("cluster"), key("job"), text("script"), number("date"))
