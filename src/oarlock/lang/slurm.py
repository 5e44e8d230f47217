"""What Slurm writes: lists of hosts, counts of trackable resources, numbers of states."""

import re
from collections.abc import Iterator

from oarlock.model.job import JobState
from oarlock.model.source import NodeChange

_PART = re.compile(r"([^,\[\]]*)(?:\[([0-9,-]+)\])?([^,\[\]]*)")
_MOST_HOSTS = 100_000

STATES = (
    "PENDING", "RUNNING", "SUSPENDED", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED",
    "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY",
)  # fmt: skip
"""Slurm's base states, by number; flags stand above the lowest byte."""

NO_VALUE = 4_294_967_294
CPU, MEMORY, NODE = 1, 2, 4
"""Numbers of trackable resources that every Slurm has."""

_OF_STATE = {
    "PENDING": JobState.WAITING, "RUNNING": JobState.RUNNING, "SUSPENDED": JobState.SUSPENDED,
    "COMPLETED": JobState.TERMINATED, "FAILED": JobState.TERMINATED,
    # Flags that squeue shows in place of the base state.
    "CONFIGURING": JobState.RUNNING, "RESIZING": JobState.RUNNING, "SIGNALING": JobState.RUNNING,
    "STAGE_OUT": JobState.RUNNING, "STOPPED": JobState.SUSPENDED, "REQUEUED": JobState.WAITING,
    "REQUEUE_FED": JobState.WAITING, "REQUEUE_HOLD": JobState.HOLD, "SPECIAL_EXIT": JobState.HOLD,
}  # fmt: skip


def hosts(text: str) -> list[str]:
    """Expand a list of hosts (`n[1-3,7],login1`); text that is none gives what can be read of it."""
    names: list[str] = []
    for match in _PART.finditer(text or ""):
        before, numbers, after = match.groups()
        if not match[0]:
            continue
        for number in _numbers(numbers) if numbers else ("",):
            names.append(before + number + after)
            if len(names) >= _MOST_HOSTS:
                return names
    return names


def _numbers(text: str) -> Iterator[str]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            continue
        for number in range(int(first), min(int(last or first), int(first) + _MOST_HOSTS) + 1):
            yield str(number).zfill(len(first))


def counts(text: str) -> dict[int, int]:
    """Read counts of trackable resources by number: `1=2,2=1200,4=1`."""
    pairs = (part.partition("=") for part in (text or "").split(","))
    return {int(key): int(value) for key, _, value in pairs if key.isdigit() and value.isdigit()}


def state_word(number: int) -> str:
    """Return Slurm's word for the number of a job's state."""
    base = number & 0xFF
    return STATES[base] if base < len(STATES) else f"state {base}"


def state_of(word: str, *, held: bool = False) -> JobState:
    """Return our state for Slurm's word; what ended otherwise than by itself is an error."""
    if word == "PENDING" and held:
        return JobState.HOLD
    return _OF_STATE.get(word, JobState.ERROR)


_DOWN, _BASE, _DRAIN = 1, 0xF, 1 << 9


def node_state(number: int) -> tuple[str, bool]:
    """Return our state of a node for Slurm's number, and whether it is drained."""
    if number & _BASE == _DOWN:
        return "Dead", bool(number & _DRAIN)
    return "Alive", bool(number & _DRAIN)


def node_change(name: str, number: int, start: int, stop: int) -> NodeChange | None:
    """Return when a node was away, of an event of slurmdbd; None where it only took no new jobs."""
    state, _ = node_state(int(number))
    return None if state == "Alive" else NodeChange(name, state, int(start), int(stop))


_FAILED_NODES = ("down", "fail", "error", "unknown", "future")
_POWERED_DOWN = ("powered_down", "powering_down", "power_down")


def node_state_of(word: str) -> tuple[str, bool]:
    """Return our state of a node for sinfo's word (`drained*`, `idle~`), and whether it is drained."""
    base = word.rstrip("*~#!%$@^-+").lower()
    marks = word[len(base) :]
    is_drained = base.startswith("drain")
    if base.startswith(_FAILED_NODES):
        return "Dead", is_drained
    if "*" in marks:  # it does not answer slurmctld
        return "Suspected", is_drained
    if "~" in marks or base.startswith(_POWERED_DOWN):
        return "Absent", is_drained
    return "Alive", is_drained


_LIMIT = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)")


def limit_seconds(text: str) -> int:
    """Return the seconds of a time limit (`1-02:03:04`, `10:00`); 0 for one without end, or none at all."""
    match = _LIMIT.fullmatch(text)
    if match is None:
        return 0
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
