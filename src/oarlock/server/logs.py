"""The log: a line an event, a short text and what it is about, to a file or to standard error."""

import logging
from logging.handlers import WatchedFileHandler

from oarlock.config import Config
from oarlock.node.log_lines import DetailFormatter
from oarlock.store.engine import journal

ONLY_WARNINGS, NO_JOBS = 1, 2
"""Levels of LOG_LEVEL below the highest."""


class RotatedFileHandler(WatchedFileHandler):
    """Opens its file anew when it was moved away or removed.

    Where that fails (the folder is gone), the line is lost and the caller goes on: the standard class raises.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)


def begin(config: Config) -> None:
    """Send the log where the settings say."""
    handler = RotatedFileHandler(config.log_file) if config.log_file else logging.StreamHandler()
    handler.setFormatter(DetailFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("alembic").setLevel(logging.WARNING)  # which tells of itself more than of the tables
    journal.JOBS.setLevel(logging.WARNING if config.log_level <= NO_JOBS else logging.INFO)
    level = logging.WARNING if config.log_level <= ONLY_WARNINGS else logging.INFO
    logging.basicConfig(level=level, handlers=[handler], force=True)
