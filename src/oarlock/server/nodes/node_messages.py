"""What messages of a node say; nothing in them is believed to have the right type or length."""

from oarlock.model.job import UnknownAttempt
from oarlock.node.wire.channel import Body

Key = tuple[int, int]
"""A job and its attempt."""

_LONGEST_PUBLIC_KEY = 1000  # characters
_LONGEST = 64  # characters of a name that only a node vouches for


def public_key(body: Body) -> str:
    """Return the public half of the pair that a node made for a job, if it did."""
    text = body.get("key", "")
    return text if isinstance(text, str) and len(text) <= _LONGEST_PUBLIC_KEY else ""


def key_of(body: Body) -> Key:
    """Return which attempt a message is about; zeros where it names none."""
    job, attempt = body.get("job"), body.get("attempt")
    return (job, attempt) if isinstance(job, int) and isinstance(attempt, int) else (0, 0)


def unknown_attempt(node: str, about: Body) -> UnknownAttempt:
    """Parse what a node reports of an attempt that is not expected. Unsigned ones have only their numbers."""
    job, attempt = key_of(about)
    held = about.get("resources")
    started, walltime = about.get("started"), about.get("walltime")
    return UnknownAttempt(
        node=node,
        job=job,
        attempt=attempt,
        tag=str(about.get("tag", "")),
        generation=str(about.get("generation", ""))[:_LONGEST],
        user="".join(filter(str.isprintable, str(about.get("user") or "")))[:_LONGEST],
        since=int(started) if isinstance(started, float | int) else 0,
        walltime=walltime if isinstance(walltime, int) else 0,
        resources=tuple(number for number in held if isinstance(number, int)) if isinstance(held, list) else (),
        alive=bool(about.get("alive", "report" not in about)),
    )
