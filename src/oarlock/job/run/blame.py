"""Which failures make a node Suspected: its own faults at once; those a user can cause only when several users failed.

The table is `EVENTS` in `model/event.py` (`blame` and `suspects`); `UnitOfWork.event` is the only caller.

Programs of the site need more than the table: one that cannot be run, or that fails for jobs of two users in a row,
would fail on every node, and to suspect one node after the other would not help.
"""

from collections.abc import Iterable

from oarlock.model.event import EVENTS, Blame, EventType
from oarlock.node.wire.messages import EXIT, UNUSABLE

BEFORE_JOB = (EventType.PROLOGUE_ERROR, EventType.CPUSET_ERROR)
"""Events that rule out that the user's command runs."""

AFTER_JOB = (EventType.EPILOGUE_ERROR, EventType.CPUSET_CLEAN_ERROR)
"""Events that may follow the end of the command."""

_IN_A_ROW = 2  # users for whose jobs a program of the site failed: then it is the program

SEVERAL_USERS = 3
"""Users whose jobs failed on a node, one after the other: then it is the node."""

_WINDOW = 3600  # seconds for which a failure counts


class NodeFailures:
    """Users whose jobs failed on each node since a job last started well there.

    Kept in memory: after a restart of the server the count begins anew. Adding the same failure twice, as a
    transaction that is tried again does, changes nothing.
    """

    def __init__(self) -> None:
        self._failed: dict[str, dict[str, int]] = {}  # node → user → when

    def started(self, node: str) -> None:
        """Forget the failures of a node: a job started well there."""
        self._failed.pop(node, None)

    def failed(self, node: str, user: str, *, at: int) -> list[str]:
        """Count a failure; return the users whose jobs failed there one after the other, if they are several."""
        recent = {name: when for name, when in self._failed.get(node, {}).items() if at - when < _WINDOW}
        self._failed[node] = {**recent, user: at}
        users = sorted(self._failed[node])
        return users if len(users) >= SEVERAL_USERS else []


class ProgramFailures:
    """Users for whose jobs a program of the site failed since it last worked, by the event that reports it.

    Kept in memory, as `NodeFailures` are.
    """

    def __init__(self) -> None:
        self._users: dict[EventType, set[str]] = {}
        self.held: set[int] = set()  # jobs that were held for it

    def blame(self, kind: EventType, cause: str, *, user: str) -> Blame:
        """Return whose fault an event is. `cause` is why a program of the site failed; empty: it was none."""
        if EVENTS[kind].stops_queues or cause == UNUSABLE:
            return Blame.SITE
        if not cause:
            return EVENTS[kind].blame
        users = self._users.setdefault(kind, set())
        users.add(user)
        if len(users) >= _IN_A_ROW:
            return Blame.SITE
        # A prologue that ran and exited with an error may mean this very job; all else is blamed on the node.
        return Blame.USER if kind is EventType.PROLOGUE_ERROR and cause == EXIT else EVENTS[kind].blame

    def worked(self, kinds: Iterable[EventType]) -> None:
        """Note that the programs behind these events did what they should."""
        if self._users:
            for kind in kinds:
                self._users.pop(kind, None)
            self.held.clear()

    def forget(self) -> None:
        """Begin anew: an administrator has looked."""
        self._users.clear()
        self.held.clear()
