"""Who could start now: asked before each job of a pass, so that it need not go on when nobody could."""

from collections.abc import Mapping, Sequence

from oarlock.plan.board import Board, Kind
from oarlock.plan.fit import Fit


class Sort:
    """What decides whether a job can start now: all jobs of a sort can, or none. `possible`: on an empty cluster."""

    __slots__ = ("fit", "kind", "length", "possible")

    def __init__(self, kind: Kind, fit: Fit, length: int, *, possible: bool) -> None:
        self.kind, self.fit, self.length, self.possible = kind, fit, length, possible


class Hopes:
    """The sorts of jobs that are still to come in a pass, and which of them could start.

    Inside a pass room only shrinks: a sort that could not start once never can again. Only where groups want the same
    resources (`steady` is False) less room may be better, so for such a sort there is always hope.
    """

    __slots__ = ("_hopeless", "_to_come", "_untried")

    def __init__(self, jobs_of: Mapping[Sort, int]) -> None:
        self._to_come = dict(jobs_of)
        self._untried = list(jobs_of)
        self._hopeless: set[Sort] = set()

    def come(self, sorts: Sequence[Sort]) -> None:
        """Let one job more be still to come."""
        for sort in sorts:
            self._to_come[sort] = self._to_come.get(sort, 0) + 1
            if sort not in self._hopeless:
                self._untried.append(sort)

    def gone(self, sorts: Sequence[Sort]) -> None:
        """Let a job have had its turn."""
        for sort in sorts:
            self._to_come[sort] -= 1

    def left(self, board: Board) -> bool:
        """Say whether anybody who is still to come could start now."""
        untried, to_come = self._untried, self._to_come
        while untried:
            sort = untried[-1]
            if to_come[sort] > 0 and sort not in self._hopeless and self._could(sort, board):
                return True
            untried.pop()
        return False

    def could_start(self, sorts: Sequence[Sort], board: Board) -> bool:
        """Say whether a job could start now."""
        hopeless = self._hopeless
        for sort in sorts:  # noqa: SIM110 - a generator would take twice as long
            if sort not in hopeless and self._could(sort, board):
                return True
        return False

    def _could(self, sort: Sort, board: Board) -> bool:
        if not sort.fit.steady or board.chart(sort.kind).find_now(sort.fit, sort.length) is not None:
            return True
        self._hopeless.add(sort)
        return False
