"""The file of management controllers (REDFISH_FILE): lines of node, address, user and password.

    # node       address                  user     password   how its certificate is believed
    n1           https://n1-bmc           monitor  "se cret"
    n[2-40]      https://{node}-bmc       monitor  secret     sha256:3f5a…
    s1           https://cmc/redfish/v1/Chassis/Sled1 monitor secret insecure

A name may stand for several nodes, and `{node}` in the address for its own name. An address with a path means that
chassis alone. The last word is `insecure`, `sha256:` with the sum of the one certificate that is accepted, or `ca:`
with a file of authorities; without one, the authorities that the machine trusts count.
"""

import re
import shlex
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from oarlock.model import nodeset
from oarlock.model.errors import ConfigRefused
from oarlock.settings import secret

_LONGEST = 4 << 20  # bytes
_LEAST_WORDS, _MOST_WORDS = 4, 5
_FINGERPRINT = re.compile(r"sha256:([0-9a-fA-F]{64}|(?:[0-9a-fA-F]{2}:){31}[0-9a-fA-F]{2})")
_AUTHORITY = re.compile(r"ca:(/\S+)")
INSECURE = "insecure"


class ControllerAddress(NamedTuple):
    """A management controller, and how it is believed to be the right one. Equal ones share a session."""

    url: str
    user: str
    password: str
    verify: bool = True
    authority: str = ""
    fingerprint: str = ""


class ControlledNode(NamedTuple):
    """A node, its controller, and the path of its chassis there; without one, all chassis are its own."""

    node: str
    controller: ControllerAddress
    chassis: str = ""


def read(path: Path) -> list[ControlledNode]:
    """Read the file; `ConfigRefused`, or `SecretExposed` if others could read it."""
    nodes: dict[str, ControlledNode] = {}
    for number, line in enumerate(secret.read_file(path, longest=_LONGEST).splitlines(), 1):
        for node in _parse_line(line, f"{path}, line {number}"):
            if node.node in nodes:
                raise ConfigRefused(
                    f"{path}, line {number}: {node.node} has a controller already.", hint="Name it once."
                )
            nodes[node.node] = node
    return list(nodes.values())


def _parse_line(line: str, where: str) -> list[ControlledNode]:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise ConfigRefused(f"{where}: {error}.", hint="A quote is missing.") from None
    if not words:
        return []
    if not _LEAST_WORDS <= len(words) <= _MOST_WORDS:
        # Never the line itself: it has a password.
        raise ConfigRefused(
            f"{where} has {len(words)} words.", hint="Write node, address, user and password; quote what has blanks."
        )
    try:
        names = nodeset.unfold(words[0])
    except ValueError as error:
        raise ConfigRefused(f"{where}: {error}", hint="Write a name, or several as n[1-40].") from None
    believed = _parse_trust(words[_LEAST_WORDS] if len(words) > _LEAST_WORDS else "", where)
    return [_controlled(name, words[1].replace("{node}", name), words[2], words[3], believed, where) for name in names]


def _controlled(
    node: str, address: str, user: str, password: str, believed: tuple[bool, str, str], where: str
) -> ControlledNode:
    parts = urlsplit(address)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigRefused(f"{where}: `{address}` is no address.", hint="Write https://NAME.")
    url = f"{parts.scheme}://{parts.netloc}"
    return ControlledNode(node, ControllerAddress(url, user, password, *believed), parts.path.rstrip("/"))


def _parse_trust(word: str, where: str) -> tuple[bool, str, str]:
    """Return whether certificates are checked, the file of authorities, and the one sum that is accepted."""
    if not word:
        return True, "", ""
    if word == INSECURE:
        return False, "", ""
    if match := _FINGERPRINT.fullmatch(word):
        return True, "", match[1]
    if match := _AUTHORITY.fullmatch(word):
        return True, match[1], ""
    raise ConfigRefused(
        f"{where}: `{word}` says nothing about a certificate.",
        hint=f"Write {INSECURE}, sha256: with the sum of the certificate, or ca: with a file of authorities.",
    )
