"""Why a job waits, and when it could start."""
