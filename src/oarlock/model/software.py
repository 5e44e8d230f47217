"""Which software a job ran: executables by the CPU time that they used, and modules that its script loads."""

import re
from collections.abc import Iterable, Mapping

from msgspec import Struct

EXECUTABLE, MODULE = "executable", "module"
KINDS = (EXECUTABLE, MODULE)

MOST_NAMES = 12
"""How many executables, and how many modules, are kept of a job."""

LONGEST_NAME = 80
_LONGEST_SCRIPT = 64 * 1024
_LEAST_SHARE = 0.01  # of the job's CPU time: a shell that starts the program is not what the job ran
_LOADS = re.compile(r"^[ \t]*(?:module[ \t]+(?:load|add)|ml(?:[ \t]+load)?)[ \t]+([^\n#;&|]+)", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z0-9][\w.+/@-]*\Z")
_COMMANDS_OF_ML = frozenset(
    ("av", "avail", "list", "purge", "spider", "unload", "rm", "swap", "use", "save", "restore")
)


class SoftwareUse(Struct, frozen=True, array_like=True):
    """A software that a job ran, with the core-seconds held and the CPU seconds used that are counted for it.

    Executables share those of their job; a module has all of them, as several are loaded together.
    """

    kind: str
    name: str
    core_seconds: float
    cpu_seconds: float


def used_software(
    executables: Mapping[str, float], modules: Iterable[str], *, core_seconds: float, cpu_seconds: float
) -> list[SoftwareUse]:
    """Return what a job ran. `executables` has a weight for each: its CPU time, or else its threads."""
    whole = sum(executables.values())
    largest = sorted(executables.items(), key=lambda item: (-item[1], item[0]))[:MOST_NAMES] if whole > 0 else []
    used = [
        SoftwareUse(EXECUTABLE, shown, round(core_seconds * weight / whole, 3), round(cpu_seconds * weight / whole, 3))
        for name, weight in largest
        if weight >= _LEAST_SHARE * whole and (shown := _shown(name))
    ]
    return used + [SoftwareUse(MODULE, name, round(core_seconds, 3), round(cpu_seconds, 3)) for name in modules]


def _shown(name: str) -> str:
    """Return the name of an executable without its folders and what no database can store."""
    return name.rpartition("/")[2].replace("\0", "")[:LONGEST_NAME]


def modules_of(script: str) -> list[str]:
    """Return the modules that a script loads (`module load`, `ml`), in its order, each once."""
    names: dict[str, None] = {}
    for match in _LOADS.finditer(script[:_LONGEST_SCRIPT]):
        words = match[1].split()
        if words[0] in _COMMANDS_OF_ML:
            continue
        names |= {word: None for word in words if len(word) <= LONGEST_NAME and _NAME.match(word)}
    return list(names)[:MOST_NAMES]
