"""Dates that jobs have: `-t postpone=DATE` and `-t deadline=DATE`, in the server's own time zone."""

import re
import time

from msgspec.structs import replace

from oarlock.lang.limits import short
from oarlock.model.errors import BadType
from oarlock.model.snapshot import WaitingJob

POSTPONE, DEADLINE = "postpone", "deadline"
HINT = 'Write a date: "YYYY-MM-DD hh:mm:ss".'

_DATE = re.compile(r"(\d{4}-\d{1,2}-\d{1,2})(?:[ T](\d{1,2}:\d{2})(:\d{2})?)?")


def instant(text: str) -> int | None:
    """Read `YYYY-MM-DD hh:mm:ss`, without seconds or without a time, or seconds since 1970; None: it is no date."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return int(text) if text.strip().isdecimal() and text.isascii() and len(text) <= 11 else None
    try:
        written = f"{found[1]} {found[2] or '00:00'}{found[3] or ':00'}"
        return int(time.mktime(time.strptime(written, "%Y-%m-%d %H:%M:%S")))
    except (ValueError, OverflowError):
        return None


def shown(at: int) -> str:
    """Write an instant in the server's own time zone; one that no calendar has, as its number."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
    except (ValueError, OverflowError, OSError):
        return str(at)


def with_date(says: str, at: int) -> str:
    """End a refusal with the date at which a reservation could run."""
    return f"{says}, at {shown(at)}"


def date_in(says: str) -> int | None:
    """Find the date that such a refusal ends with."""
    _, at, date = says.rpartition(", at ")
    return instant(date) if at else None


def check(types: tuple[str, ...], *, now: int) -> None:
    """Refuse dates of types that are none, or a deadline that has passed."""
    for one in types:
        word, _, text = one.partition("=")
        if word not in {POSTPONE, DEADLINE}:
            continue
        date = instant(text)
        if date is None:
            raise BadType(f"`{short(text)}`, which the type {word} has, is not a date.", hint=HINT)
        if word == DEADLINE and date <= now:
            raise BadType(f"The deadline `{short(text)}` has passed.", hint="Give a later one, or none.")


def dated(job: WaitingJob) -> WaitingJob:
    """Give a job the dates that its types say; one that cannot be read any more is no date."""
    if not any(one.startswith((f"{POSTPONE}=", f"{DEADLINE}=")) for one in job.types):
        return job
    said = {one.partition("=")[0]: instant(one.partition("=")[2]) for one in job.types}
    return replace(job, not_before=said.get(POSTPONE) or 0, deadline=said.get(DEADLINE))
