"""Files for nodes with an installed node program: the program, a forced command, a sudoers line."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oarlock import __version__
from oarlock.model.submission_errors import BadPath
from oarlock.node.program import loader
from oarlock.server.nodes.channel import node_fingerprint, node_sources
from oarlock.server.nodes.command import ACCOUNT

PROGRAM = Path("/usr/local/lib/oarlock/node")
"""Where the program lies on a node, unless the site says otherwise."""

_PLAIN = re.compile(r"/[A-Za-z0-9_./-]+")  # needs no quoting in sudoers, authorized_keys and a shell
_KEY = re.compile(r"(ssh-|ecdsa-|sk-)[^\s\"]+ [A-Za-z0-9+/=]+( [^\r\n]*)?")


@dataclass(frozen=True, slots=True)
class FixedNodeSettings:
    """Settings that are fixed on an installed node, so that no server can change them."""

    spool: Path
    runtime: Path
    lowest_uid: int
    programs: Sequence[Path] = ()  # of the site, that a launch may name


@dataclass(frozen=True, slots=True)
class NodeFiles:
    """The texts of the three files."""

    program: str
    authorized_keys: str
    sudoers: str


def node_files(fixed: FixedNodeSettings, *, key: str, program: Path = PROGRAM, account: str = ACCOUNT) -> NodeFiles:
    """Build the files for nodes that a server with this public key may reach."""
    key = key.strip()
    if not _PLAIN.fullmatch(str(program)):
        raise BadPath(f"The program cannot lie at `{program}`.", hint="Give a whole path of letters, digits and ._-/.")
    if not _KEY.fullmatch(key):
        raise BadPath("That is not one public key of ssh.", hint="Name a file such as ~/.ssh/id_ed25519.pub.")
    settings = {
        "spool": str(fixed.spool),
        "runtime": str(fixed.runtime),
        "lowest_uid": fixed.lowest_uid,
        "programs": [str(path) for path in fixed.programs],
    }
    about = f"The node program of Oarlock {__version__} ({node_fingerprint()}), made by `oarlock node install`."
    return NodeFiles(
        loader.installable(node_sources(), settings, fingerprint=node_fingerprint(), about=about),
        f'restrict,command="sudo -n {program}" {key}\n',
        f'{account} ALL=(root) NOPASSWD: {program} ""\n',
    )
