"""Programs of the site that the settings name: where each runs, and which event tells that it failed."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from oarlock.config import Config
from oarlock.model.event import EventType


class RunsOn(StrEnum):
    """Where a program of the site runs."""

    SERVER = "server"
    NODES = "nodes"


@dataclass(frozen=True, slots=True)
class SiteProgram:
    """A program of the site; `event` tells that it failed, if no job can do without it."""

    key: str
    command: tuple[str, ...]
    runs_on: RunsOn
    event: EventType | None = None

    @property
    def path(self) -> str:
        """The program itself, without its arguments."""
        return self.command[0]


_NODES: tuple[tuple[str, EventType | None], ...] = (
    ("PROLOGUE_EXEC_FILE", EventType.PROLOGUE_ERROR),
    ("EPILOGUE_EXEC_FILE", EventType.EPILOGUE_ERROR),
    ("JOB_RESOURCE_MANAGER_FILE", EventType.CPUSET_ERROR),
    ("OARMONITOR_SENSOR_FILE", None),
)
_SERVER: tuple[tuple[str, EventType | None], ...] = (
    ("SERVER_PROLOGUE_EXEC_FILE", EventType.SERVER_PROLOGUE_ERROR),
    ("SERVER_EPILOGUE_EXEC_FILE", EventType.SERVER_EPILOGUE_ERROR),
    ("JUST_AFTER_SUSPEND_EXEC_FILE", None),
    ("JUST_BEFORE_RESUME_EXEC_FILE", None),
    ("SCHEDULER_NODE_MANAGER_WAKE_UP_CMD", None),
    ("SCHEDULER_NODE_MANAGER_SLEEP_CMD", None),
    ("SUSPECTED_HEALING_EXEC_FILE", None),
    ("ARCHIVE_FETCH_CMD", None),
    ("PINGCHECKER_FPING_COMMAND", None),
    ("PINGCHECKER_NMAP_COMMAND", None),
    ("PINGCHECKER_GENERIC_COMMAND", None),
)


def on_nodes(config: Config) -> list[SiteProgram]:
    """List the programs that run on every node."""
    return _listed(config, RunsOn.NODES, _NODES)


def on_server(config: Config) -> list[SiteProgram]:
    """List the programs that run on the server."""
    return _listed(config, RunsOn.SERVER, _SERVER)


def _listed(config: Config, runs_on: RunsOn, keys: Sequence[tuple[str, EventType | None]]) -> list[SiteProgram]:
    programs = []
    for key, event in keys:
        value = getattr(config, key.lower())
        if value:
            command = value if isinstance(value, tuple) else (str(value),)
            programs.append(SiteProgram(key, command, runs_on, event))
    return programs
