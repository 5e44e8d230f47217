"""Lower bounds on starts: inside a pass free sets only shrink, so a search continues where the last one ended.

A bound of one shape holds for every shape that requests as much or more: where four nodes with two cores each are not
free, six with two are not either. Shapes form a partial order; raising a bound raises those of the next harder shapes,
and so on, until a bound is already as high.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from oarlock.plan.fit.fit import Fit


class ShapeBounds:
    """Lower bounds of one shape: no window of `duration` or longer begins before `start`. Both lists increase."""

    __slots__ = ("_durations", "_starts")

    def __init__(self) -> None:
        self._durations: list[int] = []
        self._starts: list[int] = []

    def at(self, duration: int) -> int:
        """Return the bound for a duration; 0 if there is none."""
        index = bisect_right(self._durations, duration) - 1
        return self._starts[index] if index >= 0 else 0

    def raise_to(self, duration: int, start: int) -> bool:
        """Record that no window of `duration` begins before `start`; False if the bound is already as high."""
        index = bisect_right(self._durations, duration)
        if index and self._starts[index - 1] >= start:
            return False
        if index and self._durations[index - 1] == duration:
            index -= 1
        dominated = bisect_right(self._starts, start, index)
        self._durations[index:dominated] = [duration]
        self._starts[index:dominated] = [start]
        return True

    def raise_like(self, other: "ShapeBounds") -> None:
        """Take over the bounds of an easier shape."""
        for duration, start in zip(other._durations, other._starts, strict=True):
            self.raise_to(duration, start)


@dataclass(slots=True, eq=False)
class BoundedShape:
    """The bounds of a shape, and its direct successors: harder shapes with no other shape between."""

    fit: Fit
    bounds: ShapeBounds = field(default_factory=ShapeBounds)
    harder: set["BoundedShape"] = field(default_factory=set)


class SearchBounds:
    """The bounds of all shapes that were searched for."""

    def __init__(self) -> None:
        self._shapes: dict[Fit, BoundedShape] = {}

    def at(self, fit: Fit, duration: int) -> int:
        """Return the instant before which no window of a shape begins; 0 if there is no bound."""
        shape = self._shapes.get(fit)
        if shape is None:
            shape = self._register(fit)
        return shape.bounds.at(duration)

    def raise_to(self, fit: Fit, duration: int, start: int) -> None:
        """Record that a shape, and every harder one, has no window before `start`.

        Where a bound is already as high, so are those of all harder shapes: the propagation stops there.
        """
        left = [self._shapes[fit]]
        while left:
            shape = left.pop()
            if shape.bounds.raise_to(duration, start):
                left += shape.harder

    def clear(self) -> None:
        """Drop all bounds: resources were released, so earlier starts are possible again."""
        self._shapes.clear()

    def _register(self, fit: Fit) -> BoundedShape:
        shapes = set(self._shapes.values())
        easier = {shape for shape in shapes if _is_easier(shape.fit, fit)}
        harder = {shape for shape in shapes if _is_easier(fit, shape.fit)}
        for shape in easier & harder:  # equally hard: both share their bounds
            self._shapes[fit] = shape
            return shape
        new = self._shapes[fit] = BoundedShape(fit, harder=harder.difference(*(shape.harder for shape in harder)))
        for shape in easier:
            if easier.isdisjoint(shape.harder):  # no shape is between the two
                shape.harder = shape.harder - harder | {new}
                new.bounds.raise_like(shape.bounds)
        return new


def _is_easier(fit: Fit, other: Fit) -> bool:
    """Return whether a shape surely fits every free set that the other one fits."""
    if not (fit.monotone and other.monotone and fit.demand and other.demand):
        return False
    if fit.of_nodes and not other.of_nodes:  # whole nodes count as the smallest node, so they may need more
        return False
    mine, theirs = fit.demand, other.demand
    return mine.of == theirs.of and all(some <= more for some, more in zip(mine.counts, theirs.counts, strict=True))
