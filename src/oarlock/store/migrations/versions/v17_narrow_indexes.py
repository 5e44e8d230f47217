"""Indexes over states and kinds of events hold what is looked for, not the usual life of every past job."""

from alembic import op
from sqlalchemy import text

from oarlock.store.tables.columns import partial_index

revision = "17"
down_revision = "16"

_INDEXES = (
    ("job_state_logs", "job_state", "date_stop = 0 AND job_state NOT IN ('Terminated', 'Error')"),
    ("event_logs", "type", "type <> 'SWITCH_INTO_TERMINATE_STATE'"),
)


def upgrade() -> None:
    """Make them again, with conditions."""
    for table, column, where in _INDEXES:
        name = f"ix_{table}_{column}"
        op.drop_index(name, table)
        index = partial_index(name, column, where)
        op.create_index(name, table, [column], **index.dialect_kwargs)


_REASONS = {
    "Waiting": "submitted",
    "toLaunch": "its resources are free",
    "Launching": "attempt 1 begins",
    "Finishing": "its command ended",
    "Terminated": "everything is cleaned",
}


def downgrade() -> None:
    """Make them again, without; and write out the usual reasons of states."""
    for state, why in _REASONS.items():
        written_out = text("UPDATE job_state_logs SET why = :why WHERE why = '.' AND job_state = :state")
        op.execute(written_out.bindparams(why=why, state=state))
    for table, column, _ in _INDEXES:
        name = f"ix_{table}_{column}"
        op.drop_index(name, table)
        op.create_index(name, table, [column])
