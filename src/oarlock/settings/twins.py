"""Keys of OAR 2.5 that have a twin here: they are read as their twin, in OAR's own forms."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

_PAIR = re.compile(r"""\s*(?:'([^']*)'|"([^"]*)"|([\w.-]+))\s*=>\s*([0-9.]+)\s*""")


class TwinKey(NamedTuple):
    """The key that a setting of OAR 2.5 is here, and how its value is rewritten."""

    name: str
    rewrite: Callable[[str], str] = str


def _targets(text: str) -> str:
    """Rewrite OAR's `{first => 75, default => 25.0}` as `first=75 default=25.0`."""
    stripped = text.strip()
    if not (stripped.startswith("{") and stripped.endswith("}")):
        return text
    pairs = []
    for entry in filter(str.strip, stripped[1:-1].split(",")):
        match = _PAIR.fullmatch(entry)
        if match is None:
            raise ValueError(entry)
        pairs.append(f"{match[1] or match[2] or match[3]}={match[4]}")
    return " ".join(pairs)


TWINS: Mapping[str, TwinKey] = {
    "SCHEDULER_FAIRSHARING_WINDOW_SIZE": TwinKey("KARMA_WINDOW"),
    "SCHEDULER_FAIRSHARING_PROJECT_TARGETS": TwinKey("KARMA_PROJECT_TARGETS", _targets),
    "SCHEDULER_FAIRSHARING_USER_TARGETS": TwinKey("KARMA_USER_TARGETS", _targets),
    "SCHEDULER_FAIRSHARING_COEF_PROJECT": TwinKey("KARMA_COEFF_PROJECT_CONSUMPTION"),
    "SCHEDULER_FAIRSHARING_COEF_USER": TwinKey("KARMA_COEFF_USER_CONSUMPTION"),
    "SCHEDULER_FAIRSHARING_COEF_USER_ASK": TwinKey("KARMA_COEFF_USER_ASKED_CONSUMPTION"),
    "ENERGY_SAVING_NODE_MANAGER_WAKE_UP_CMD": TwinKey("SCHEDULER_NODE_MANAGER_WAKE_UP_CMD"),
    "ENERGY_SAVING_NODE_MANAGER_SLEEP_CMD": TwinKey("SCHEDULER_NODE_MANAGER_SLEEP_CMD"),
    "ENERGY_SAVING_NODE_MANAGER_WAKEUP_TIMEOUT": TwinKey("SCHEDULER_NODE_MANAGER_WAKEUP_TIME"),
    "LEON_SOFT_WALLTIME": TwinKey("JOBDEL_SOFTWALLTIME"),
    "LEON_WALLTIME": TwinKey("JOBDEL_WALLTIME"),
}
"""OAR's key → ours."""
