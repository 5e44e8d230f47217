"""The addresses of users, from a file of the site: a name and an address on each line."""

import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"[^\s@,;<>\"]{1,64}@[A-Za-z0-9.-]{1,250}")
_MOST_BYTES = 16 << 20


def read_addresses(path: Path | None) -> Mapping[str, str]:
    """Return the address of each user in a file, which is read again when it changes; none without a file.

    A line is `user address`, with blanks or a colon between; what follows a `#` is left out. A file that cannot be
    read, and lines that are not of this form, are logged once.
    """
    if path is None:
        return {}
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        changed = 0
    return _read_at(path, changed)


@lru_cache(maxsize=2)
def _read_at(path: Path, _changed: int) -> Mapping[str, str]:
    try:
        with path.open("rb") as file:
            lines = file.read(_MOST_BYTES).decode("utf-8", "replace").splitlines()
    except OSError as error:
        log.warning("MAIL_ADDRESSES cannot be read", extra={"file": str(path), "why": str(error)})
        return {}
    addresses: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].replace(":", " ", 1).split()
        if len(words) == 2 and _ADDRESS.fullmatch(words[1]):
            addresses[words[0]] = words[1]
        elif words:
            log.warning("a line of MAIL_ADDRESSES is not a user and an address", extra={"file": f"{path}:{number}"})
    return addresses
