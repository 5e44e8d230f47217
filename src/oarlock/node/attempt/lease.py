"""The time of an attempt: when the checkpoint signal is due, when the job must end, when it is killed.

Arithmetic only; callers pass the time, in seconds of a clock that never jumps.
"""

from __future__ import annotations

CHECKPOINT, END, KILL = "checkpoint", "end", "kill"

_KILL_AGAIN = 5.0
_FAR = 1e12


class Lease:
    """How long a job may run. The time of a suspended job does not count."""

    def __init__(self, walltime: int, *, checkpoint: int = 0, margin: float = 0.0) -> None:
        self.walltime, self._checkpoint, self._margin = walltime, checkpoint, margin
        self._start: float | None = None
        self._suspended_at: float | None = None
        self._kill_at: float | None = None
        self._ending = False
        self.suspended = 0.0  # seconds

    def begin(self, at: float) -> None:
        """Start counting: the user's code runs from now on."""
        self._start = at

    def ran(self, at: float) -> float:
        """Return the seconds since the start, suspension included."""
        return 0.0 if self._start is None else at - self._start

    @property
    def is_suspended(self) -> bool:
        return self._suspended_at is not None

    def suspend(self, at: float) -> None:
        """Stop counting the time."""
        self._suspended_at = at

    def resume(self, at: float) -> None:
        """Count the time again."""
        if self._suspended_at is not None:
            self.suspended += at - self._suspended_at
            self._suspended_at = None

    def finish(self, at: float, grace: float) -> None:
        """Begin the grace time. Asked twice, the job gets no more time than the first time."""
        self._ending = True
        self._kill_at = at + grace if self._kill_at is None else min(at + grace, self._kill_at)

    def signalled(self) -> None:
        """Record that the checkpoint signal was sent, so that it is sent once only."""
        self._checkpoint = 0

    def _end(self) -> float:
        if self._start is None or self._suspended_at is not None or self._ending:
            return _FAR
        return self._start + self.walltime + self.suspended + self._margin

    def due(self, at: float) -> str | None:
        """Return what is due now, the most urgent first. A KILL is due again a little later."""
        if self._kill_at is not None and at >= self._kill_at:
            self._kill_at = at + _KILL_AGAIN
            return KILL
        if at >= self._end():
            return END
        if self._checkpoint and at >= self._end() - self._checkpoint:
            return CHECKPOINT
        return None

    def next(self) -> float:
        """Return the instant at which something will be due."""
        return min(_FAR if self._kill_at is None else self._kill_at, self._end() - self._checkpoint)
