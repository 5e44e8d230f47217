"""What the members of an array share, once an array; owners of jobs and tokens by their number, too."""

from alembic import op
from sqlalchemy import Index

from oarlock.store.tables.columns import flag, key, number, optional_number, optional_text, partial_index, text

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make the tables and add the columns."""
    op.add_column("jobs", number("texts_id"))
    op.add_column("jobs", optional_number("job_uid"))
    op.add_column("tokens", optional_number("uid"))
    op.create_table(
        "array_texts",
        key("array_id"),
        number("last_job_id"),
        optional_text("command"),
        text("job_env"),
        text("initial_request"),
        flag("stored"),
        partial_index("ix_array_texts_stored", "array_id", "stored = 'NO'"),
    )
    op.create_table(
        "array_members",
        key("job_id"),
        number("array_id"),
        number("array_index"),
        optional_text("command"),
        Index("ix_array_members_array_id", "array_id"),
    )
