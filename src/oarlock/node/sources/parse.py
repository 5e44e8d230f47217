"""The small grammars that kernel files share. A text that does not follow its grammar is a ValueError."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter

U64_MOST = (1 << 64) - 1
_UNLIMITED_V1 = range(1 << 62, 1 << 63)
"""A v1 memory limit in here is none: it reads as the largest whole page below 2^63, and page sizes differ."""


def limit(text: bytes) -> int | None:
    """Read a limit: a whole number, or None for the word `max` and for v1's largest value."""
    word = text.strip()
    if word == b"max":
        return None
    value = int(word) if word.isdigit() else -1
    if not 0 <= value <= U64_MOST:
        raise ValueError(f"{text!r} is neither a whole number of 64 bits nor `max`")
    return None if value in _UNLIMITED_V1 else value


def cpu_list(text: bytes) -> list[int]:
    """Read a list of CPUs such as `0-1,3,5`; empty text is an empty list."""
    cpus: list[int] = []
    for part in text.decode("ascii").strip().split(","):
        if not part:
            continue
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"{part!r} is not a CPU or a range of CPUs")
        cpus.extend(range(int(first), int(last if dash else first) + 1))
    return cpus


def word_values(text: bytes) -> dict[bytes, int]:
    """Read lines of `word number`, as in `cpu.stat`."""
    words = text.split()
    return dict(zip(words[::2], map(int, words[1::2])))


class WordPositions:
    """Where wanted words stand in a file of `word number` lines, whose order a kernel never changes.

    Looking the places up once and picking by position costs a third of building a dict a job a sample.
    Words that this kernel does not print are left out.
    """

    __slots__ = ("_names", "_present_words", "_size", "_take", "_wanted")

    def __init__(self, wanted: Mapping[bytes, str]) -> None:
        self._wanted = wanted
        self._size = -1
        self._present_words: tuple[bytes, ...] = ()
        self._names: list[str] = []
        self._take: Callable[[list[bytes]], tuple[bytes, ...]] = tuple

    def pick(self, words: list[bytes], into: dict[str, float]) -> None:
        """Put the values of the wanted words into `into`."""
        if len(words) != self._size:
            self._learn(words)
        picked = self._take(words)
        if picked[::2] != self._present_words:  # another kernel's file after all
            self._learn(words)
            picked = self._take(words)
        into.update(zip(self._names, map(int, picked[1::2])))

    def _learn(self, words: list[bytes]) -> None:
        position = {word: at for at, word in enumerate(words[:-1]) if at % 2 == 0}
        self._present_words = tuple(word for word in self._wanted if word in position)
        self._names = [self._wanted[word] for word in self._present_words]
        places = [at for word in self._present_words for at in (position[word], position[word] + 1)]
        self._take = itemgetter(*places) if places else _nothing
        self._size = len(words)


def _nothing(words: list[bytes]) -> tuple[bytes, ...]:  # noqa: ARG001
    return ()
