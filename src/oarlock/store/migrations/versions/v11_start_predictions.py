"""The first start that was predicted for a job, to be compared with the real one."""

from alembic import op

from oarlock.store.tables.columns import key, number

revision = "11"
down_revision = "10"


def upgrade() -> None:
    """Add the table."""
    op.create_table("start_predictions", key("job_id"), number("date"), number("start_time"))
