"""Up to which instant the energy of a node is booked."""

from alembic import op

from oarlock.store.tables.columns import number

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Add the instant; nothing says how far older rows go."""
    op.add_column("energy_days", number("until_ms"))
