"""Users whom a look-up did not find."""

from alembic import op

from oarlock.store.tables.columns import number, text, text_key

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "account_doubts",
        text_key("user_name"),
        text_key("host"),
        number("missing_since"),
        number("last"),
        number("until"),
        text("reason"),
    )
