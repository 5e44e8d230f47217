"""Stretches of time, each with the least, the sum, the most and the count of what was measured in it.

`times` are the last instants of stretches (milliseconds, 8-byte integers), `cells` their four parts by series, doubles.
"""

from typing import Protocol

PARTS = 4  # least, sum, most and count
CELL = 8


class Stretches(Protocol):
    """What has stretches. `width` is that of each, in milliseconds."""

    width: int
    times: bytes
    cells: bytes


def regroup(part: Stretches) -> None:
    """Join what lies in one stretch of the width; the instant of a stretch is its last one."""
    import numpy as np

    times = np.frombuffer(part.times, "<i8")
    cells = np.frombuffer(part.cells, "<f8").reshape(len(times), PARTS, -1)
    places = times // part.width
    begins = np.flatnonzero(np.r_[True, places[1:] != places[:-1]])
    ends = np.r_[begins[1:], len(times)] - 1
    joined = np.empty((len(begins), PARTS, cells.shape[2]))
    joined[:, 0] = np.fmin.reduceat(cells[:, 0], begins)
    joined[:, 2] = np.fmax.reduceat(cells[:, 2], begins)
    joined[:, 1::2] = np.add.reduceat(cells[:, 1::2], begins)
    part.times, part.cells = times[ends].tobytes(), joined.tobytes()
