"""Where searches ended: inside a pass room only shrinks, so nothing earlier has to be looked at again.

What was found for one shape holds for every shape that asks for as much or more: where four nodes with two cores each
are not free, six with two are not either. Each shape has its own stairs; whoever raises them raises those of the next
harder shapes, and so on, up to those that are as high already.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from oarlock.plan.fit.fit import Fit


class ShapeBounds:
    """Lower bounds of one shape: no stay of `duration` or longer begins before `start`. Both only ever rise."""

    __slots__ = ("_durations", "_starts")

    def __init__(self) -> None:
        self._durations: list[int] = []
        self._starts: list[int] = []

    def at(self, duration: int) -> int:
        """Return the bound for a duration; 0 where nothing is known."""
        index = bisect_right(self._durations, duration) - 1
        return self._starts[index] if index >= 0 else 0

    def raise_to(self, duration: int, start: int) -> bool:
        """Remember that a stay of `duration` cannot begin before `start`; False if that was known."""
        index = bisect_right(self._durations, duration)
        if index and self._starts[index - 1] >= start:
            return False
        if index and self._durations[index - 1] == duration:
            index -= 1
        beaten = bisect_right(self._starts, start, index)
        self._durations[index:beaten] = [duration]
        self._starts[index:beaten] = [start]
        return True

    def raise_like(self, other: "ShapeBounds") -> None:
        """Remember all that is known of an easier shape."""
        for duration, start in zip(other._durations, other._starts, strict=True):
            self.raise_to(duration, start)


@dataclass(slots=True, eq=False)
class BoundedShape:
    """What is known of a shape, and the shapes that are next harder: harder than it, and than no other harder one."""

    fit: Fit
    stairs: ShapeBounds = field(default_factory=ShapeBounds)
    harder: set["BoundedShape"] = field(default_factory=set)


class SearchBounds:
    """The stairs of all shapes that were searched for."""

    def __init__(self) -> None:
        self._known: dict[Fit, BoundedShape] = {}

    def at(self, fit: Fit, duration: int) -> int:
        """Return the instant before which there is no place for a shape; 0 where nothing is known."""
        known = self._known.get(fit)
        if known is None:
            known = self._meet(fit)
        return known.stairs.at(duration)

    def raise_to(self, fit: Fit, duration: int, start: int) -> None:
        """Remember that a shape, and every harder one, has no place before `start`.

        Stairs that are as high already need no look at what is harder still: those are as high at least.
        """
        left = [self._known[fit]]
        while left:
            known = left.pop()
            if known.stairs.raise_to(duration, start):
                left += known.harder

    def clear(self) -> None:
        """Drop all bounds: resources were released, so earlier starts are possible again."""
        self._known.clear()

    def _meet(self, fit: Fit) -> BoundedShape:
        met = set(self._known.values())
        easier = {known for known in met if _is_easier(known.fit, fit)}
        harder = {known for known in met if _is_easier(fit, known.fit)}
        for known in easier & harder:  # as hard: what is known of one is of both
            self._known[fit] = known
            return known
        new = self._known[fit] = BoundedShape(fit, harder=harder.difference(*(known.harder for known in harder)))
        for known in easier:
            if easier.isdisjoint(known.harder):  # nobody is between the two
                known.harder = known.harder - harder | {new}
                new.stairs.raise_like(known.stairs)
        return new


def _is_easier(fit: Fit, other: Fit) -> bool:
    """Return whether a shape surely fits wherever the other one does."""
    if not (fit.monotone and other.monotone and fit.demand and other.demand):
        return False
    if fit.of_nodes and not other.of_nodes:  # what is counted of a whole node is what the smallest has; others ask more
        return False
    mine, theirs = fit.demand, other.demand
    return mine.of == theirs.of and all(some <= more for some, more in zip(mine.counts, theirs.counts, strict=True))
