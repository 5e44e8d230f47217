"""What the node program knows of attempts, and of the supervisors that it gave them to."""

from __future__ import annotations

from oarlock.node.channel import Body, Endpoint
from oarlock.node.messages import BAD, Refused
from oarlock.node.spool import Key


class Worker:
    """A supervisor as the program sees it."""

    def __init__(self, line: Endpoint) -> None:
        self.line = line
        self.key: Key | None = None
        self.rested = 0.0  # when it last became idle, in seconds of `time.monotonic`


class Attempt:
    """An attempt as the program sees it: with a worker it lives, with a report it is over."""

    def __init__(self, worker: Worker | None, state: str, started: float | None = None) -> None:
        self.worker, self.state, self.started = worker, state, started
        self.report: Body | None = None

    def body(self, key: Key) -> Body:
        """Describe it for the server."""
        about: Body = {"job": key[0], "attempt": key[1], "state": self.state, "started": self.started}
        return {**about, "report": self.report} if self.report else about


def key_of(body: Body) -> Key:
    """Read which attempt a request is about, or refuse it."""
    job, attempt = body.get("job"), body.get("attempt")
    if not (isinstance(job, int) and isinstance(attempt, int)):
        raise Refused(BAD, f"job {job!r}, attempt {attempt!r}: both must be numbers")
    return job, attempt


def keys_of(body: Body) -> list[Key]:
    """Read which attempts a request is about, or refuse it."""
    pairs = body.get("attempts")
    if not (isinstance(pairs, list) and all(_is_pair(pair) for pair in pairs)):
        raise Refused(BAD, "`attempts` is a list of pairs of numbers")
    return [(job, number) for job, number in pairs]


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and [type(part) for part in pair] == [int, int]


def report_in(body: Body) -> Body:
    """Take the signed report out of what a supervisor said."""
    return {name: body[name] for name in ("job", "attempt", "report", "mac")}
