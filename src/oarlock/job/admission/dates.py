"""Dates in job types: `-t postpone=DATE` and `-t deadline=DATE`, in the server's time zone."""

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
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return int(text) if text.strip().isdecimal() and text.isascii() and len(text) <= 11 else None
    try:
        written = f"{match[1]} {match[2] or '00:00'}{match[3] or ':00'}"
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
    for job_type in types:
        word, _, text = job_type.partition("=")
        if word not in {POSTPONE, DEADLINE}:
            continue
        date = instant(text)
        if date is None:
            raise BadType(f"`{short(text)}`, which the type {word} has, is not a date.", hint=HINT)
        if word == DEADLINE and date <= now:
            raise BadType(f"The deadline `{short(text)}` has passed.", hint="Give a later one, or none.")


def dated(job: WaitingJob) -> WaitingJob:
    """Return a job with the dates of its types; a date that cannot be parsed any more is ignored."""
    if not any(job_type.startswith((f"{POSTPONE}=", f"{DEADLINE}=")) for job_type in job.types):
        return job
    dates_by_type = {job_type.partition("=")[0]: instant(job_type.partition("=")[2]) for job_type in job.types}
    return replace(job, not_before=dates_by_type.get(POSTPONE) or 0, deadline=dates_by_type.get(DEADLINE))
