"""The settings of a site: read for a command that serves, and shown by `oarlock config` with where each comes from."""

import json
import shlex
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from oarlock.cli.output import show_text
from oarlock.config import KEYS, Config, Key, Loaded, load
from oarlock.model.errors import ConfigRefused
from oarlock.settings.secret import Secret

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """One setting: its value as the file would have it, and where that was said. A hidden value is not the real one."""

    key: str
    section: str
    value: str
    source: str
    hidden: bool = False


def load_to_listen(file: Path | None, listen: str | None, *, nowhere: str) -> Config:
    """Read the settings of a server, with `--listen` in the place of theirs; begin its log, and log warnings.

    `nowhere` is what is wrong with listening nowhere.
    """
    from oarlock.measure.options import address
    from oarlock.server.process import logs

    loaded = load(file)
    config = loaded.config
    if listen is not None:
        where = address(listen)
        if where is None:
            raise ConfigRefused(nowhere, hint="Write HOST:PORT.")
        config = replace(config, server_hostname=where[0], server_port=where[1])
    logs.begin(config)
    show_warnings(loaded)
    return config


def show_warnings(loaded: Loaded) -> None:
    """Print what is doubtful in a settings file."""
    for warning in loaded.warnings:
        show_text(f"oarlock: {warning}", file=sys.stderr)


def effective(loaded: Loaded) -> list[EffectiveSetting]:
    """Return every setting, by section."""
    return [_setting(key, loaded) for key in KEYS.values()]


def _setting(key: Key, loaded: Loaded) -> EffectiveSetting:
    value = key.value(loaded.config)
    line = loaded.lines.get(key.name)
    source = DEFAULT if line is None else f"{loaded.file}, line {line}"
    hidden = isinstance(value, Secret) and value.file is None
    return EffectiveSetting(key.name, key.section, key.shown(loaded.config), source, hidden)


def as_text(settings: Iterable[EffectiveSetting]) -> str:
    """Show settings as a settings file that means the same, with the origin of each value as a comment."""
    return "\n".join(_lines(settings)).lstrip("\n") + "\n"


def _lines(settings: Iterable[EffectiveSetting]) -> Iterator[str]:
    section = ""
    for setting in settings:
        if setting.section != section:
            section = setting.section
            yield f"\n# {section}"
        if setting.hidden:
            yield f"# {setting.key} is set but not shown  # {setting.source}"
        else:
            yield f"{setting.key}={shlex.quote(setting.value)}  # {setting.source}"


def as_json(settings: Iterable[EffectiveSetting]) -> str:
    """Show settings for programs: a list of objects."""
    return json.dumps([asdict(setting) for setting in settings], indent=2) + "\n"
