"""The log: a line an event, a short text and what it is about, to a file or to standard error."""

import logging

from oarlock.config import Config

_LEVELS = {0: logging.ERROR, 1: logging.WARNING, 2: logging.INFO, 3: logging.DEBUG}
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class Sentences(logging.Formatter):
    """Writes the text, then everything it was given besides."""

    def format(self, record: logging.LogRecord) -> str:
        """Put what a record is about behind its text."""
        about = " ".join(f"{name}={value}" for name, value in vars(record).items() if name not in _PLAIN)
        text = super().format(record)
        first, newline, rest = text.partition("\n")
        return f"{first} {about}{newline}{rest}" if about else text


def begin(config: Config) -> None:
    """Send the log where the settings say."""
    handler = logging.FileHandler(config.log_file) if config.log_file else logging.StreamHandler()
    handler.setFormatter(Sentences("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("alembic").setLevel(logging.WARNING)  # which tells of itself more than of the tables
    logging.basicConfig(level=_LEVELS.get(config.log_level, logging.INFO), handlers=[handler], force=True)
