"""Log lines of a transaction: kept with it, and written once it is on disk.

A line written before the commit would report moves that a rollback undoes, and twice of a change that is run again.
Two loggers, so that `LOG_LEVEL` can leave out the moves of jobs: `SITE` for nodes, queues and what needs an
administrator (as a warning), `JOBS` for jobs.
"""

import logging
from collections.abc import Mapping

from oarlock.store.engine.tx import Tx

SITE = logging.getLogger("oarlock.site")
JOBS = logging.getLogger("oarlock.jobs")

Line = tuple[logging.Logger, int, str, Mapping[str, object]]

_KEY = "log lines"


def begin(tx: Tx) -> list[Line]:
    """Return the list that takes the lines of the change about to run on this connection."""
    lines: list[Line] = []
    tx.info[_KEY] = lines
    return lines


def takes(tx: Tx, logger: logging.Logger) -> bool:
    """Return whether a line is kept, for who would have to build thousands of them."""
    return tx.info.get(_KEY) is not None and logger.isEnabledFor(logging.INFO)


def note(tx: Tx, logger: logging.Logger, text: str, about: Mapping[str, object], *, level: int = logging.INFO) -> None:
    """Buffer a log line until the commit; outside the writer (in a simulation) nothing is logged."""
    lines: list[Line] | None = tx.info.get(_KEY)
    if lines is not None and logger.isEnabledFor(level):
        lines.append((logger, level, text, about))


def write(lines: list[Line]) -> None:
    """Log the lines of a change that is on disk.

    The records are made here, because `Logger.log` looks up its caller on the stack for each line.
    """
    for logger, level, text, about in lines:
        logger.handle(logger.makeRecord(logger.name, level, "", 0, text, (), None, extra=about))
