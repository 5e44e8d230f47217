"""The layouts of resource managers, read from data: those that come with the package, and a site's own."""

import tomllib
from pathlib import Path
from typing import Any

from oarlock.model.errors import ConfigRefused
from oarlock.node.measure.layout import OARLOCK, CgroupLayout

AUTO = "auto"
_KEYS = {"about", "job", "inside", "is_job"}


def all_layouts(site: Path | None = None) -> dict[str, CgroupLayout]:
    """Return all layouts by name; those of a site's file stand first and replace ours of the same name."""
    theirs = {} if site is None else read(_text(site), str(site))
    ours = read(Path(__file__).with_name("layouts.toml").read_text(), "layouts.toml")
    everyone = {OARLOCK.name: OARLOCK, **ours}
    return {**theirs, **{name: layout for name, layout in everyone.items() if name not in theirs}}


def select_layouts(name: str, site: Path | None = None) -> list[CgroupLayout]:
    """Return the layouts to look for: one by name, or with `auto` all of them."""
    layouts = all_layouts(site)
    if name == AUTO:
        return list(layouts.values())
    if name not in layouts:
        raise ConfigRefused(f"There is no layout `{name}`.", hint=f"Known are auto, {', '.join(layouts)}.")
    return [layouts[name]]


def read(text: str, where: str) -> dict[str, CgroupLayout]:
    """Read layouts from TOML; `where` names the file in a refusal."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigRefused(f"The layouts in {where} are not TOML: {error}.") from error
    return {name: _layout(name, table, where) for name, table in tables.items()}


def _layout(name: str, table: Any, where: str) -> CgroupLayout:
    if not isinstance(table, dict) or not table.get("job"):
        raise ConfigRefused(
            f"The layout `{name}` in {where} does not say where its jobs are.",
            hint='Give it `job = ["path/of/{user}_{job}"]`.',
        )
    unknown = sorted(table.keys() - _KEYS)
    if unknown:
        raise ConfigRefused(
            f"The layout `{name}` in {where} has the unknown key `{unknown[0]}`.",
            hint=f"Known are {', '.join(sorted(_KEYS))}.",
        )
    try:
        inside = [(level, template) for level, template in table.get("inside", ())]
        return CgroupLayout(name, table["job"], inside, is_job=table.get("is_job", True))
    except (TypeError, ValueError) as error:
        raise ConfigRefused(f"The layout `{name}` in {where} cannot be used: {error}.") from error


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ConfigRefused(f"The layouts in {path} cannot be read: {error.strerror}.") from error
