"""The form of a log line: a short text, then what it is about. The same for server, agent and node program."""

from __future__ import annotations

import json
import logging
import time

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class DetailFormatter(logging.Formatter):
    """Writes the text of a record and its `extra` fields, `name=value`; what could break a line is quoted."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._second = -1
        self._date = ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        """Return the date as the standard formatter does; at most one conversion a second."""
        second = int(record.created)
        if second != self._second:
            self._date, self._second = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second)), second
        return f"{self._date},{int(record.msecs):03d}"

    def format(self, record: logging.LogRecord) -> str:
        """Put the details behind the first line of the text; a traceback follows."""
        details = [f"{name}={_value(value)}" for name, value in vars(record).items() if name not in _PLAIN]
        text = super().format(record)
        if not details:
            return text
        first, newline, rest = text.partition("\n")
        return f"{first} {' '.join(details)}{newline}{rest}"


def _value(value: object) -> str:
    """Return a value as one word; texts that users choose must not be able to forge a line."""
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if text and text.isprintable() and " " not in text and '"' not in text:
        return text
    return json.dumps(text, ensure_ascii=not text.replace("\n", "").isprintable())


def to_stderr(text: str, *, level: int) -> None:
    """Send the log of this process to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(DetailFormatter(text))
    logging.basicConfig(level=level, handlers=[handler])
