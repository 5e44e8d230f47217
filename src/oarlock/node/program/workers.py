"""What the node program knows of attempts, and of the supervisors that it gave them to."""

from __future__ import annotations

from oarlock.node.program.spool import Key
from oarlock.node.wire.channel import Body, Endpoint
from oarlock.node.wire.mac import fingerprint
from oarlock.node.wire.messages import BAD, NodeRequestRefused


class Worker:
    """A supervisor as the program sees it."""

    def __init__(self, line: Endpoint) -> None:
        self.line = line
        self.key: Key | None = None
        self.rested = 0.0  # when it last became idle, in seconds of `time.monotonic`


_KEPT = ("secret", "generation", "user", "walltime", "resources")
"""What is kept of a launch: commands and environments may be large."""


class NodeAttempt:
    """An attempt as the program sees it: with a worker it lives, with a report it is over."""

    def __init__(self, worker: Worker | None, state: str, launch: Body | None = None) -> None:
        self.worker, self.state = worker, state
        self._launch = {name: launch[name] for name in _KEPT if name in launch} if launch else {}
        self.started: float | None = None
        self.report: Body | None = None

    @property
    def tag(self) -> str:
        """The fingerprint of its secret: two attempts of the same number differ in it."""
        return fingerprint(str(self._launch.get("secret", "")))

    @property
    def generation(self) -> str:
        """The generation of the database that began it."""
        return str(self._launch.get("generation", ""))

    def body(self, key: Key) -> Body:
        """Describe it for the server."""
        launch = self._launch
        about: Body = {"job": key[0], "attempt": key[1], "state": self.state, "started": self.started}
        about.update(tag=self.tag, generation=self.generation, user=launch.get("user"), walltime=launch.get("walltime"))
        about["resources"] = [row.get("resource_id") for row in launch.get("resources", ()) if isinstance(row, dict)]
        return {**about, "report": self.report} if self.report else about


def key_of(body: Body) -> Key:
    """Read which attempt a request is about, or refuse it."""
    job, attempt = body.get("job"), body.get("attempt")
    if not (isinstance(job, int) and isinstance(attempt, int)):
        raise NodeRequestRefused(BAD, f"job {job!r}, attempt {attempt!r}: both must be numbers")
    return job, attempt


def keys_of(body: Body) -> list[Key]:
    """Read which attempts a request is about, or refuse it."""
    pairs = body.get("attempts")
    if not (isinstance(pairs, list) and all(_is_pair(pair) for pair in pairs)):
        raise NodeRequestRefused(BAD, "`attempts` is a list of pairs of numbers")
    return [(job, number) for job, number in pairs]


def tag_of(body: Body) -> str:
    """Read by which fingerprint a request names an attempt; an empty one names an unsigned file."""
    tag = body.get("tag")
    if not isinstance(tag, str):
        raise NodeRequestRefused(BAD, f"the tag {tag!r} is not a text")
    return tag


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and [type(part) for part in pair] == [int, int]


def extract_report(body: Body) -> Body:
    """Return the signed report of a supervisor's event."""
    return {name: body[name] for name in ("job", "attempt", "report", "mac")}
