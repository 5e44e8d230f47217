"""What a message of Colmet says, whichever form it came in, and how it is refused."""

import re
from typing import NamedTuple

Number = int | float

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,253}[A-Za-z0-9])?")


class UnreadableMessage(ValueError):
    """A message that is not believed; the text says why."""


class ColmetRecord(NamedTuple):
    """What one backend measured of a job, or of the node (job 0), under Colmet's names and in its units."""

    backend: str
    job: int
    at: float  # epoch seconds, by the node's clock
    values: dict[str, Number]
    involved_jobs: tuple[int, ...] = ()


class ColmetMessage(NamedTuple):
    """What a node sent at once."""

    host: str
    records: list[ColmetRecord]


def check_host(name: str) -> str:
    """Return the name of a host; raise `UnreadableMessage` for what is none."""
    if not _HOST.fullmatch(name) or ".." in name:
        raise UnreadableMessage(f"{name[:80]!r} is not the name of a host")
    return name
