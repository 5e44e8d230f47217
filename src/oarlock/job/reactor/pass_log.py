"""The last scheduling passes, for those who look at the scheduler."""

from collections import deque

from msgspec import Struct

MOST_PASSES = 200


class PassRecord(Struct, frozen=True):
    """A scheduling pass: when, how long it took with what it decided, how many jobs it started and left unread.

    `whole`: it planned all waiting jobs; a quick pass only starts those that fit now.
    """

    at: int
    seconds: float
    whole: bool
    started: int
    left: int


def new_log() -> deque[PassRecord]:
    """Return an empty log; it forgets the oldest pass for each one beyond its length."""
    return deque(maxlen=MOST_PASSES)
