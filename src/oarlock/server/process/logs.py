"""The log: a line an event, a short text and what it is about, to a file or to standard error; repeated ones once."""

import logging
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from logging.handlers import WatchedFileHandler
from types import TracebackType

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
    logging.getLogger("alembic").setLevel(logging.WARNING)  # which logs more about itself than about the tables
    journal.JOBS.setLevel(logging.WARNING if config.log_level <= NO_JOBS else logging.INFO)
    level = logging.WARNING if config.log_level <= ONLY_WARNINGS else logging.INFO
    logging.basicConfig(level=level, handlers=[handler], force=True)


WINDOW_SECONDS = 10.0
_LINES_WITHOUT_TRACEBACK = 5
_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_MOST_KEPT = 10_000


@dataclass(slots=True)
class _Seen:
    """A message that was logged: until when others like it are counted, and how many there were."""

    until: float
    record: logging.LogRecord
    lines: int = 0
    count: int = 0


class RepeatFilter(logging.Filter):
    """Passes a warning or an error once in ten seconds, then logs how often it was repeated.

    Two messages are the same if their texts and all they are about are. Of faults with a traceback, only the place
    counts: the first is logged in full, a few more in one line each, since each may have a number of its own.
    """

    def __init__(self, handler: logging.Handler, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._handler, self._clock = handler, clock
        self._seen: dict[Hashable, _Seen] = {}
        self._next_look = 0.0
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is logged."""
        if hasattr(record, "repeated"):
            return True
        now = self._clock()
        if now >= self._next_look:
            self.flush()
        if record.levelno < logging.WARNING:
            return True
        with self._lock:
            return self._is_new(record, now)

    def _is_new(self, record: logging.LogRecord, now: float) -> bool:
        key = _key(record)
        seen = self._seen.get(key)
        if seen is None or now >= seen.until:
            if len(self._seen) < _MOST_KEPT:
                self._seen[key] = _Seen(now + WINDOW_SECONDS, record)
            return True
        if record.exc_info and seen.lines < _LINES_WITHOUT_TRACEBACK:
            seen.lines += 1
            record.exc_info, record.exc_text = None, None
            return True
        seen.count += 1
        return False

    def flush(self, *, final: bool = False) -> None:
        """Log how often each message came again whose ten seconds are over; at the end of the program, all."""
        now = self._clock()
        with self._lock:
            self._next_look = now + WINDOW_SECONDS / 2
            over = [key for key, seen in self._seen.items() if final or now >= seen.until]
            gone = [self._seen.pop(key) for key in over]
        for seen in gone:
            if seen.count:
                self._handler.handle(_summary(seen))


def _key(record: logging.LogRecord) -> Hashable:
    if record.exc_info and record.exc_info[0] is not None:
        return record.name, record.msg, record.exc_info[0], _place(record.exc_info[2])
    about = tuple((name, str(value)) for name, value in vars(record).items() if name not in _PLAIN)
    return record.name, record.getMessage(), about


def _place(traceback: TracebackType | None) -> Hashable:
    """Return where an exception was raised."""
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return traceback.tb_frame.f_code, traceback.tb_lineno


def _summary(seen: _Seen) -> logging.LogRecord:
    first = seen.record
    text = f"{first.getMessage().splitlines()[0]} (again)"
    about = {name: value for name, value in vars(first).items() if name not in _PLAIN}
    record = logging.LogRecord(first.name, first.levelno, first.pathname, first.lineno, text, None, None)
    record.__dict__.update(about, repeated=seen.count)
    return record


def install_filters() -> list[RepeatFilter]:
    """Add a filter to every log handler."""
    filters = []
    for handler in logging.getLogger().handlers:
        filters.append(RepeatFilter(handler))
        handler.addFilter(filters[-1])
    return filters
