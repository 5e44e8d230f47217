"""Which mails users want, which findings staff have set aside, and warnings before a job is ended."""

from alembic import op

from oarlock.store.tables.columns import key, number, text, text_key

revision = "12"
down_revision = "11"


def upgrade() -> None:
    """Add the tables."""
    op.create_table("mail_choices", text_key("user_name"), text_key("kind"), number("date"))
    op.create_table(
        "finding_snoozes",
        key("snooze_id"),
        number("date"),
        number("until"),
        text("rule"),
        text("user_name"),
        text("reason"),
        text("author"),
    )
    op.create_table("finding_warnings", key("job_id"), text_key("rule"), key("idle_minutes"), number("date"))
