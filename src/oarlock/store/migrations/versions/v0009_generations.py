"""Generations of the database, and attempts on nodes that it does not know."""

from alembic import op

from oarlock.store.tables.columns import key, number, text

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the columns of attempts, and the table."""
    op.add_column("attempts", text("generation"))
    op.add_column("attempts", text("nonce"))
    op.create_table(
        "unknown_attempts",
        key("unknown_id"),
        text("network_address"),
        number("job_id"),
        number("number"),
        text("tag"),
        text("generation"),
        text("user_name"),
        number("since"),
        number("walltime"),
        text("resources"),
    )
