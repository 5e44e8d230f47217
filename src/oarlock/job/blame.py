"""Which failures make a node Suspected: its own faults at once; those a user can cause only when several users failed.

The table is `EVENTS` in `model/event.py` (`blame` and `suspects`); `Ledger.event` is the only caller.
"""

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
