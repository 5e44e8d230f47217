"""Values that stand apart from the others of their kind: tasks of an array that ran much longer, or used much less."""

from collections.abc import Mapping
from statistics import median

LEAST_VALUES = 5
"""Among fewer nothing stands apart."""

_DEVIATIONS = 3 * 1.4826  # three standard deviations, where the values are normal
_LEAST_SHARE = 0.25


def outliers(values: Mapping[int, float]) -> dict[int, float]:
    """Return which values stand apart, and the median of all.

    Apart is over three deviations from the median, by the median of deviations (a few wild values do not hide each
    other), and over a quarter of the median: values that are nearly equal are not torn apart.
    """
    if len(values) < LEAST_VALUES:
        return {}
    middle = median(values.values())
    spread = median(abs(value - middle) for value in values.values())
    limit = max(_DEVIATIONS * spread, _LEAST_SHARE * abs(middle))
    return {key: middle for key, value in values.items() if abs(value - middle) > limit}
