"""How much memory a job may use on each node of an attempt."""

from alembic import op

from oarlock.store.tables.columns import optional_number

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column."""
    op.add_column("attempt_nodes", optional_number("memory_limit_bytes"))
