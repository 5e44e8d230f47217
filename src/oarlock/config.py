"""All settings in one object, and how a settings file is found and read.

The file is the manual's bash-compatible `oar.conf`; no file is needed to start. Keys and fields have the same names:
`SCHEDULER_TIMEOUT` is `config.scheduler_timeout`. They are declared, each with its type, default and one sentence, in
`settings/*_keys.py`. Only the server reads this; commands need nothing but its socket.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from oarlock.model.errors import ConfigRefused
from oarlock.settings import reader as settings_reader
from oarlock.settings.job_keys import JobSettings, StagingSettings
from oarlock.settings.kinds import SettingKind
from oarlock.settings.portal_keys import SignInSettings, SourceSettings
from oarlock.settings.scheduler_keys import SchedulerSettings
from oarlock.settings.server_keys import ServerSettings

SYSTEM_FILE = Path("/etc/oarlock/oar.conf")
VARIABLE = "OARLOCK_CONF"


@dataclass(frozen=True, kw_only=True)
class Config(SourceSettings, SignInSettings, SchedulerSettings, StagingSettings, JobSettings, ServerSettings):
    """All settings, with a default for each; sentences go to the reference page.

    Fields of the last base come first: that is the order of the reference page.
    """


@dataclass(frozen=True, slots=True)
class Key:
    """A setting, as the file, the reference page and `oarlock config` name it."""

    name: str
    section: str
    kind: SettingKind[Any]
    default: Any
    says: str

    def value(self, config: Config) -> Any:
        """Return the value that a configuration has for it."""
        return getattr(config, self.name.lower())

    def shown(self, config: Config) -> str:
        """Return that value as the file would have it; a secret stays hidden."""
        return self.kind.show(self.value(config))


KEYS: Mapping[str, Key] = {
    setting.name.upper(): Key(name=setting.name.upper(), **setting.metadata) for setting in fields(Config)
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings as they are in effect: from which file, on which line each, and what has no effect."""

    config: Config
    warnings: tuple[str, ...] = ()
    file: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict)


def load(
    path: Path | None = None, *, environment: Mapping[str, str] = os.environ, system: Path = SYSTEM_FILE
) -> Loaded:
    """Find and read the settings: `path`, else `$OARLOCK_CONF`, else the system's file, else defaults.

    A file that was named must exist. `ConfigRefused` and `SecretExposed` say what to do.
    """
    named = path or (Path(environment[VARIABLE]) if environment.get(VARIABLE) else None)
    file = named or system
    try:
        loaded_file = settings_reader.read(file, {name: key.kind for name, key in KEYS.items()})
    except FileNotFoundError as problem:
        if named is None:
            return Loaded(Config())
        raise ConfigRefused(
            f"There is no settings file {file}.", hint="Name another, or none for defaults."
        ) from problem
    config = Config(**{key.lower(): value for key, value in loaded_file.values.items()})
    _check_together(config, file)
    return Loaded(config, tuple(loaded_file.warnings), file, loaded_file.lines)


def _check_together(config: Config, file: Path) -> None:
    """Refuse values that are good alone and bad together."""
    if config.jobdel_walltime <= config.jobdel_softwalltime:
        raise ConfigRefused(
            f"{file}: a job would be given up after {config.jobdel_walltime} s (JOBDEL_WALLTIME), before it is killed "
            f"after {config.jobdel_softwalltime} s (JOBDEL_SOFTWALLTIME).",
            hint="Make JOBDEL_WALLTIME the longer one.",
        )
