"""A diagnosis: what one check says of one host, with the way out."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Verdict(IntEnum):
    """How bad it is; the worst one is the exit code of the command."""

    FINE = 0
    WARNING = 1
    BROKEN = 2


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The sentence of one check; `way_out` is empty where all is fine."""

    host: str
    check: str
    verdict: Verdict
    sentence: str
    way_out: str = ""


def fine(host: str, check: str, sentence: str) -> Diagnosis:
    """Return that a check is content."""
    return Diagnosis(host, check, Verdict.FINE, sentence)


def warning(host: str, check: str, sentence: str, way_out: str) -> Diagnosis:
    """Return that jobs run, but not as they should."""
    return Diagnosis(host, check, Verdict.WARNING, sentence, way_out)


def broken(host: str, check: str, sentence: str, way_out: str) -> Diagnosis:
    """Return that jobs will fail, or that work may be lost."""
    return Diagnosis(host, check, Verdict.BROKEN, sentence, way_out)


def worst(diagnoses: Iterable[Diagnosis]) -> Verdict:
    """Return the worst verdict."""
    return max((diagnosis.verdict for diagnosis in diagnoses), default=Verdict.FINE)


_GIB = 1 << 30
_LITTLE, _TOO_LITTLE = 10, 2  # percent that are free
_ENOUGH = 50 * _GIB  # so much is room enough on a disk of any size
_HARDLY_ANY = _GIB // 4


def disk(host: str, check: str, path: str, room: tuple[int, int] | None) -> Diagnosis:
    """Judge the free bytes and all bytes of the disk of a path."""
    if room is None:
        return broken(host, check, f"the disk of {path} cannot be read", f"df {path}")
    free, total = room
    percent = 100 * free // max(total, 1)
    sentence = f"{path}: {free / _GIB:.1f} GiB free ({percent} %)"
    if free < _HARDLY_ANY or (percent < _TOO_LITTLE and free < _GIB):
        return broken(host, check, sentence, f"make room: `du -xh {path} | sort -h | tail`")
    if percent < _LITTLE and free < _ENOUGH:
        return warning(host, check, sentence, f"make room soon: `du -xh {path} | sort -h | tail`")
    return fine(host, check, sentence)
