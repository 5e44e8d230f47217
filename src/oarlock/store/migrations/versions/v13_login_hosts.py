"""The login host where a job was submitted, if that was proven."""

from alembic import op

from oarlock.store.tables.columns import text

revision = "13"
down_revision = "12"


def upgrade() -> None:
    """Add the column."""
    op.add_column("jobs", text("login_host"))


def downgrade() -> None:
    """Drop the column."""
    op.drop_column("jobs", "login_host")
