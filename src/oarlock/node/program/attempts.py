"""The attempts of this node: which are here, which may begin, and which are to be forgotten.

Besides those that this program began there are those that it found in the spool, and files there that another instance,
or somebody else, has signed.
"""

from __future__ import annotations

from collections.abc import Iterator

from oarlock.node.attempt import spool
from oarlock.node.attempt.spool import HighestJob, Key
from oarlock.node.attempt.user.job_key import BroughtKeys
from oarlock.node.cgroup import base
from oarlock.node.program import recovery
from oarlock.node.program.workers import Worker
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import (
    BAD,
    NOT_NOW,
    REBOOTED,
    SEEN,
    TAKEN,
    UNKNOWN,
    NodeRequestRefused,
    NodeSettings,
    fingerprint,
)

_FORGOTTEN = 10_000  # jobs whose last attempt is remembered after it was forgotten

_KEPT = ("secret", "generation", "user", "walltime", "resources")
"""What is kept of a launch: commands and environments may be large."""


class NodeAttempt:
    """An attempt as the program sees it: with a worker it lives, with a report it is over."""

    def __init__(self, worker: Worker | None, state: str, launch: Body | None = None) -> None:
        self.worker, self.state = worker, state
        self._launch = {name: launch[name] for name in _KEPT if name in launch} if launch else {}
        self.started: float | None = None
        self.public_key = ""
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
        if self.public_key:
            about["key"] = self.public_key
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


class AttemptTable:
    """All attempts that this node knows of, and the keys that users brought for some of them."""

    def __init__(self, settings: NodeSettings, driver: base.CgroupDriver, boot: str) -> None:
        self._settings, self._driver, self._boot = settings, driver, boot
        self._attempts: dict[Key, NodeAttempt] = {}
        self._recovered: set[int] = set()  # jobs that were in the spool before this program was
        self._forgotten: dict[int, int] = {}
        self.unsigned = recovery.UnsignedEntries(settings.spool)
        self.highest = HighestJob(settings.spool, settings.instance)
        self.keys = BroughtKeys(settings.runtime)

    def __getitem__(self, key: Key) -> NodeAttempt:
        return self._attempts[key]

    def get(self, key: Key | None) -> NodeAttempt | None:
        """Return an attempt, if it is here."""
        return self._attempts.get(key) if key is not None else None

    def named(self, key: Key, tag: str) -> NodeAttempt:
        """Return the attempt whose secret has this fingerprint, or refuse the request."""
        attempt = self._attempts.get(key)
        if attempt is None or attempt.tag != tag:
            raise NodeRequestRefused(UNKNOWN, f"there is no such attempt {spool.entry_name(key)} here")
        return attempt

    def unfinished_jobs(self) -> list[int]:
        """Return the jobs whose attempts are not over."""
        return [job for (job, _), attempt in self._attempts.items() if attempt.report is None]

    def bodies(self) -> list[Body]:
        """Describe all of them for the server."""
        return [*(attempt.body(key) for key, attempt in sorted(self._attempts.items())), *self.unsigned.bodies()]

    # Begin and end.

    def put_key(self, key: Key, body: Body) -> Body:
        """Write the key that the user brought for an attempt whose launch follows."""
        self._refuse_launch(key, body)
        text = body.get("text")
        if not isinstance(text, str):
            raise NodeRequestRefused(BAD, "the key of a job is a text")
        try:
            self.keys.put(key, text)
        except OSError as error:
            raise NodeRequestRefused("CAN_NOT_WRITE_NODE_FILE", f"{self._settings.runtime}: {error}") from error
        return {}

    def admit(self, key: Key, body: Body) -> None:
        """Add an attempt that is to be launched, or refuse it."""
        try:
            self._refuse_launch(key, body)
            self.highest.see(key[0])
        except NodeRequestRefused:
            self.keys.drop_waiting(key)
            raise
        except OSError as error:  # the disk is full: the supervisor could not write its own file either
            self.keys.drop_waiting(key)
            raise NodeRequestRefused("CAN_NOT_WRITE_PID_FILE", f"{self._settings.spool}: {error}") from error
        self.keys.claim(key)
        self._attempts[key] = NodeAttempt(None, "launching", body)

    def _refuse_launch(self, key: Key, body: Body) -> None:
        """Refuse an attempt that was here before, whose number is taken, or that is of another boot of this node."""
        boot = body.get("boot")
        if boot and boot != self._boot:
            raise NodeRequestRefused(REBOOTED, f"this node was started again: its boot id is {self._boot}, not {boot}")
        if key[0] in self._recovered:
            self._refuse_taken(key, body)
        if key in self._attempts or key[1] <= self._forgotten.get(key[0], 0):
            raise NodeRequestRefused(SEEN, f"attempt {spool.entry_name(key)} was here before")

    def _refuse_taken(self, key: Key, body: Body) -> None:
        """Refuse a launch while something of the same number is here that another generation began.

        Another attempt of that job is in the way as well: both would have the same cgroup.
        """
        same = self._attempts.get(key)
        others = [other for (job, _), other in self._attempts.items() if job == key[0] and other.report is None]
        if (
            self.unsigned.has_job(key[0])
            or (same is not None and same.tag != fingerprint(str(body.get("secret"))))
            or any(other.generation != body.get("generation", "") for other in others if other is not same)
        ):
            raise NodeRequestRefused(
                TAKEN, f"a job {key[0]} that was begun by another generation of the database is still here"
            )

    def drop(self, key: Key) -> None:
        """Drop an attempt that did not begin: it never was here."""
        del self._attempts[key]
        self.keys.drop(key)

    def lose(self, key: Key) -> Body | None:
        """End an attempt whose supervisor is gone; return its report, if it had begun."""
        report = recovery.report_lost(self._settings, self._driver, self._boot, key)
        self._attempts[key].worker = None
        if report is None:  # it made no spool entry
            self.drop(key)
        else:
            self._attempts[key].state, self._attempts[key].report = "ended", report
        return report

    def forget(self, keys: list[Key]) -> Body:
        """Forget attempts that are over and whose ends the server has."""
        for key in keys:
            attempt = self._attempts.get(key)
            if attempt is not None and attempt.report is None:
                continue  # it lives; its end is not the one that was written down
            self._attempts.pop(key, None)
            self._remember(key)
            spool.forget(self._settings.spool, key)
        return {}

    def _remember(self, key: Key) -> None:
        self._forgotten[key[0]] = max(key[1], self._forgotten.pop(key[0], 0))
        while len(self._forgotten) > _FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    def discard(self, key: Key, tag: str) -> Body:
        """Remove the file of an attempt that is over and that the server's database does not have."""
        if key in self.unsigned and tag == "":
            self.unsigned.discard(key)
        else:
            attempt = self.named(key, tag)
            if attempt.report is None:
                raise NodeRequestRefused(NOT_NOW, f"attempt {spool.entry_name(key)} is {attempt.state}")
            del self._attempts[key]
        spool.forget(self._settings.spool, key)
        return {}

    # What was here before this program.

    def recover(self) -> Iterator[tuple[Key, recovery.RecoveredAttempt]]:
        """Read the spool; yield the attempts that this instance began, with what was found of them."""
        for key, state, launch in recovery.recover_attempts(self._settings, self._driver, self._boot):
            self._recovered.add(key[0])
            if isinstance(state, recovery.UnsignedEntry):
                self.unsigned.add(key, state)
            else:
                self._attempts[key] = NodeAttempt(None, "running", launch)
                yield key, state
        self.keys.remove_orphans(set(spool.list_attempts(self._settings.spool)))

    def examine(self, key: Key) -> recovery.RecoveredAttempt:
        """Look again at an attempt whose supervisor could not be reached."""
        return recovery.examine_attempt(self._settings, self._driver, self._boot, key)
