"""Virtual nodes: they do what real ones promise (run once, keep their report, survive the server), in virtual time."""

from dataclasses import dataclass, field

from oarlock.job.news import Back, Exited, Hello, Missing, News, Started
from oarlock.model.errors import NodeRefused, NodeUnreachable
from oarlock.node.messages import (
    CLEANED,
    EXITED,
    FAILED,
    FIRST,
    KILLED,
    NOT_NOW,
    REBOOTED,
    SEEN,
    UNKNOWN,
    WALLTIME,
    Launch,
    Report,
)

Key = tuple[int, int]


@dataclass
class Attempt:
    """An attempt on a node: what it was told, when it ends by itself, and its report once it is over."""

    launch: Launch
    started: int | None
    ends: int | None
    report: Report | None = None
    stopped_at: int | None = None
    suspended: int = 0
    checkpointed: bool = False


@dataclass
class VirtualNode:
    """A node that understands `sleep N`, `exit N` after it, `fail EVENT`, and `deaf` (does not end when told)."""

    name: str
    boot: int = 1
    up: bool = True
    memory: int = 8 << 30
    attempts: dict[Key, Attempt] = field(default_factory=dict)
    ran: list[Key] = field(default_factory=list)
    seen: set[Key] = field(default_factory=set)
    expected: set[Key] = field(default_factory=set)
    told: set[tuple[Key, str]] = field(default_factory=set)
    fails: str = ""  # the event with which every launch fails
    refuses_to_stop: bool = False

    def hello(self) -> Hello:
        self._reach()
        return Hello(f"{self.name}-{self.boot}", "v2", (), 4, self.memory, "3.11", 0, 0.0)

    def launch(self, launch: Launch, now: int) -> None:
        self._reach()
        key = (launch.job, launch.attempt)
        if launch.boot != f"{self.name}-{self.boot}":
            raise NodeRefused(self.name, REBOOTED, "another boot")
        if key in self.seen:
            raise NodeRefused(self.name, SEEN, "seen before")
        self.seen.add(key)
        self.expected.add(key)
        words = launch.command.split()
        attempt = self.attempts[key] = Attempt(launch, None, None)
        event = self.fails or (words[1] if words[:1] == ["fail"] else "")
        if event:
            attempt.report = self._report(key, FAILED, now, event=event, says=f"{event} on purpose")
            return
        attempt.started = now
        if launch.role == FIRST:
            self.ran.append(key)
            attempt.ends = now + (int(words[1]) if words[:1] == ["sleep"] else 0)

    def news(self, now: int) -> list[News]:
        """Let time come to `now`, and tell what happened; nothing while the node is unplugged."""
        for key, attempt in self.attempts.items():
            self._advance(key, attempt, now)
        if not self.up:
            return []
        told: list[News] = []
        for key in sorted(self.expected & self.attempts.keys()):
            attempt = self.attempts[key]
            if attempt.started is not None and self._is_news(key, "started"):
                told.append(Started(self.name, *key, float(attempt.started)))
            if attempt.report is not None and self._is_news(key, "exited"):
                told.append(Exited(self.name, attempt.report))
        return told

    def _is_news(self, key: Key, what: str) -> bool:
        new = (key, what) not in self.told
        self.told.add((key, what))
        return new

    def next_event(self) -> int | None:
        """Say when something happens here by itself."""
        times = [
            min(t for t in (a.ends, self._deadline(a)) if t is not None)
            for a in self.attempts.values()
            if a.report is None and a.started is not None and a.stopped_at is None
        ]
        return min(times, default=None)

    def catch_up(self) -> list[News]:
        """Say what a node says when its connection is made again."""
        self.told.clear()  # a new connection tells everything again
        told: list[News] = [Back(self.name, self.hello())]
        return [*told, *(Missing(self.name, *key) for key in sorted(self.expected - self.attempts.keys()))]

    def kill(self, job: int, attempt: int, now: int) -> None:
        found = self._live(job, attempt)
        if "deaf" not in found.launch.command:
            found.report = self._report((job, attempt), KILLED, now, status=15)

    def end(self, job: int, attempt: int, now: int) -> None:
        found = self._live(job, attempt)
        found.report = self._report((job, attempt), CLEANED, now)

    def suspend(self, job: int, attempt: int, now: int) -> None:
        found = self._live(job, attempt)
        if self.refuses_to_stop:
            raise NodeRefused(self.name, "SUSPEND_ERROR", "the freezer is broken")
        found.stopped_at = now

    def resume(self, job: int, attempt: int, now: int) -> None:
        found = self._live(job, attempt)
        if found.stopped_at is not None:
            found.suspended += now - found.stopped_at
            found.ends = None if found.ends is None else found.ends + now - found.stopped_at
            found.stopped_at = None

    def checkpoint(self, job: int, attempt: int, now: int) -> None:
        found = self._live(job, attempt)
        found.checkpointed = True
        if "saves" in found.launch.command:
            found.report = self._report((job, attempt), EXITED, now, status=0)

    def forget(self, keys: tuple[Key, ...]) -> None:
        self._reach()
        for key in keys:
            self.attempts.pop(key, None)
            self.expected.discard(key)

    def ping(self) -> None:
        self._reach()

    def clock_jumps(self, seconds: int) -> None:
        """Let the clock show another time: what runs goes on for as long as it would have."""
        for one in self.attempts.values():
            one.started = None if one.started is None else one.started + seconds
            one.ends = None if one.ends is None else one.ends + seconds

    def reboot(self) -> None:
        """Lose everything that was in memory."""
        self.boot += 1
        self.attempts.clear()
        self.seen.clear()

    def _advance(self, key: Key, attempt: Attempt, now: int) -> None:
        if attempt.report is not None or attempt.started is None or attempt.stopped_at is not None:
            return
        deadline = self._deadline(attempt)
        if attempt.ends is not None and attempt.ends <= min(now, deadline):
            words = attempt.launch.command.split()
            status = int(words[words.index("exit") + 1]) << 8 if "exit" in words else 0
            attempt.report = self._report(key, EXITED, attempt.ends, status=status)
        elif deadline <= now:
            over = (("WALLTIME", "the walltime is over"),)
            attempt.report = self._report(key, WALLTIME, deadline, status=15, events=over)

    def _deadline(self, attempt: Attempt) -> int:
        return (attempt.started or 0) + attempt.launch.walltime + attempt.suspended

    def _report(self, key: Key, outcome: str, now: int, **more: object) -> Report:
        attempt = self.attempts[key]
        events = tuple(more.pop("events", ()))  # type: ignore[arg-type]
        if attempt.checkpointed:
            events = (*events, ("CHECKPOINT_SUCCESS", "the signal was sent"))
        started = None if attempt.started is None else float(attempt.started)
        ended = None if started is None else float(now)
        return Report(
            *key, self.name, f"{self.name}-{self.boot}", outcome, events=events, started=started, ended=ended, **more
        )

    def _live(self, job: int, attempt: int) -> Attempt:
        self._reach()
        found = self.attempts.get((job, attempt))
        if found is None:
            raise NodeRefused(self.name, UNKNOWN, "no such attempt")
        if found.report is not None:
            raise NodeRefused(self.name, NOT_NOW, "it is over")
        return found

    def _reach(self) -> None:
        if not self.up:
            raise NodeUnreachable(self.name, "unplugged")
