"""Dates in job types: `-t postpone=DATE`, `-t deadline=DATE` and `-t expire=DATE`, in the server's time zone."""

import re
import time

from msgspec.structs import replace

from oarlock.lang.limits import short
from oarlock.model.job_type import JobType, parse_types
from oarlock.model.snapshot import WaitingJob
from oarlock.model.submission_errors import BadType

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
    """Refuse dates of types that are none, or a deadline or expiry date that has passed."""
    for job_type in types:
        word, _, text = job_type.partition("=")
        if word not in {JobType.POSTPONE, JobType.DEADLINE, JobType.EXPIRE}:
            continue
        date = instant(text)
        if date is None:
            raise BadType(f"`{short(text)}`, which the type {word} has, is not a date.", hint=HINT)
        if word != JobType.POSTPONE and date <= now:
            what = "deadline" if word == JobType.DEADLINE else "expiry date"
            raise BadType(f"The {what} `{short(text)}` has passed.", hint="Give a later one, or none.")


def dated(job: WaitingJob) -> WaitingJob:
    """Return a job with the dates of its types; a date that cannot be parsed any more is ignored."""
    types = parse_types(job.types)
    if types.postpone is None and types.deadline is None and types.expire is None:
        return job
    ends = [instant(types.deadline or "")]
    if (expiry := instant(types.expire or "")) is not None:
        # Begun by a date is over by that date plus the walltime; of several, the shortest keeps it for all.
        ends.append(expiry + min(choice.walltime for choice in job.choices))
    deadline = min((end for end in ends if end is not None), default=None)
    return replace(job, not_before=instant(types.postpone or "") or 0, deadline=deadline)
