"""The jobs of a project by their end: its page reads the newest of a long past."""

from alembic import op

revision = "16"
down_revision = "15"


def upgrade() -> None:
    """Add the index."""
    op.create_index("ix_jobs_project_stop_time", "jobs", ["project", "stop_time"])


def downgrade() -> None:
    """Drop the index."""
    op.drop_index("ix_jobs_project_stop_time", "jobs")
