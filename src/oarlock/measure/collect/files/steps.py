"""Work in steps: some megabytes at a time, since whoever does it has other things to do meanwhile."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]
"""Yields after each step of a tenth of a second or so, and returns what was worked out. It may be given up anywhere."""


def finish(steps: Steps[T]) -> T:
    """Do all steps at once; return what they work out."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
