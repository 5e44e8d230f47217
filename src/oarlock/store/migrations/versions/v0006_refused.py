"""Why a request was refused."""

from alembic import op

from oarlock.store.tables.columns import text

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Add the column."""
    op.add_column("audit", text("refused"))
