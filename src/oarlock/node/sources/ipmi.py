"""Power of the node from its management controller, by the IPMI program that is installed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from oarlock.node.sources.background import BackgroundSource
from oarlock.node.sources.files import Values
from oarlock.node.sources.metrics import series

COMMANDS: Sequence[Sequence[str]] = (
    ("ipmi-dcmi", "--get-system-power-statistics"),
    ("ipmitool", "dcmi", "power", "reading"),
    ("ipmiutil", "dcmi", "power"),
)
PERIOD_SECONDS = 30.0
_TIMEOUT_SECONDS = 20
_WATTS = re.compile(r"^\s*(current|instantaneous|min|max|average)[^:]*:\s*(\d+(?:\.\d+)?)\s*watts?", re.I | re.M)
_STATE = re.compile(r"(?:power measurement|power reading state is)\s*:\s*(\w[\w ]*)", re.I)
_METRICS = {
    "current": "power_watts",
    "instantaneous": "power_watts",
    "min": "power_minimum_watts",
    "max": "power_maximum_watts",
    "average": "power_average_watts",
}


def readings(text: str) -> Values:
    """Read what ipmi-dcmi, ipmitool or ipmiutil print; nothing when the controller does not measure now."""
    state = _STATE.search(text)
    if state and not state[1].lower().startswith("activ"):
        return {}
    return {_METRICS[word.lower()]: float(watts) for word, watts in _WATTS.findall(text)}


def installed() -> Sequence[str] | None:
    """Return the first of the known commands that is installed."""
    import shutil  # it is large, and few nodes are measured this way

    return next((command for command in COMMANDS if shutil.which(command[0])), None)


class _Meter:
    """Ask a command. A controller that says zero is busy: its last good answer is repeated."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command)
        self._last: Values = {}

    def __call__(self) -> Values:
        import subprocess

        ran = subprocess.run(  # noqa: S603  (a fixed list of arguments, or the administrator's own)
            self._command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True
        )
        watts = readings(ran.stdout)
        if watts.get("power_watts") != 0:
            self._last = {series(name, meter="ipmi"): value for name, value in watts.items()}
        return self._last


def source(command: Sequence[str], period: float = PERIOD_SECONDS) -> BackgroundSource:
    """Measure with this command, every `period` seconds."""
    return BackgroundSource("ipmi", _Meter(command), period)
