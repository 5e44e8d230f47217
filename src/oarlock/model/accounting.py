"""Accounting: how the time of a job falls into windows of equal length."""

from collections.abc import Iterator


def shares(start: int, stop: int, window: int) -> Iterator[tuple[int, int, int]]:
    """Split [start, stop) at multiples of `window`: first and last second of each window, and the seconds in it."""
    while start < stop:
        begin = start - start % window
        end = min(stop, begin + window)
        yield begin, begin + window - 1, end - start
        start = end
