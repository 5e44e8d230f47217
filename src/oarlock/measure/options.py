"""What the agent is told to do: its options, from the command line and from a file; and the layouts of resource
managers.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from oarlock.measure import names
from oarlock.model.errors import ConfigRefused
from oarlock.node.measure.layout import OARLOCK, CgroupLayout
from oarlock.node.sources import assemble
from oarlock.node.sources.job import perf

SHORTEST_PERIOD = 0.1
LONGEST_PERIOD = 3600.0
LISTEN = "127.0.0.1:9798"
NOWHERE = "none"
OAR_VERSIONS = ("oar2", "oar3")
_LAST_PORT = 65535
_UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 1.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """Every option; the defaults measure all that is cheap and serve Prometheus on this machine only."""

    period: float = 5.0
    listen: str = LISTEN
    layout: str = "auto"
    layouts_file: Path | None = None
    jobs_only: bool = True
    sources: tuple[str, ...] = assemble.USUAL
    names: tuple[str, ...] = names.USUAL
    names_file: Path | None = None
    perf_events: tuple[str, ...] = perf.DEFAULT
    scratch: tuple[str, ...] = ("/scratch",)
    nvidia_library: str = "libnvidia-ml.so.1"
    cluster: str = ""
    json: str = ""
    csv: str = ""
    push: str = ""
    send: str = ""
    node: str = ""
    ca: Path | None = None
    control: str = ""
    control_zmq: str = ""
    control_keys: Path | None = None
    colmet: bool = False
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    token_file: Path | None = None
    scrape_token_file: Path | None = None
    open_to_all: bool = False
    look_up: str = "none"
    database: Path | None = None
    slurm_cluster: str = ""
    redfish: Path | None = None


def make_options(texts: Mapping[str, Any], base: AgentOptions = AgentOptions()) -> AgentOptions:
    """Make options of texts and values, checked; what is not given is as in `base`."""
    fields_known = {field.name for field in fields(AgentOptions)}
    values: dict[str, Any] = {}
    for key, value in texts.items():
        if key not in fields_known | {"enable", "disable"}:
            raise ConfigRefused(
                f"The agent has no option `{key}`.", hint=f"Close to it is {_closest(key, fields_known)}."
            )
        if key in fields_known:
            values[key] = _READERS.get(key, _as_is)(value)
    options = replace(base, **values)
    sources = _switched(options.sources, texts.get("enable", ()), texts.get("disable", ()), _needed(options.names))
    names.select_families(options.names, options.names_file)
    return replace(options, sources=sources)


def seconds(value: Any) -> float:
    """Read a period: a number of seconds, or `500ms`, `1s`, `1m 30s`."""
    text = str(value).strip()
    parts = _DURATION.findall(text)
    whole = "".join(_DURATION.sub("", text).split())
    if not parts or whole or any(unit not in _UNITS for _, unit in parts):
        raise ConfigRefused(f"`{text}` is not a period.", hint="Write seconds (0.5), or 500ms, 1s, 1m 30s.")
    period = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not SHORTEST_PERIOD <= period <= LONGEST_PERIOD:
        raise ConfigRefused(f"A period of {period:g} s cannot be kept.",
                            hint=f"It is from {SHORTEST_PERIOD:g} s to {LONGEST_PERIOD:g} s.")  # fmt: skip
    return period


def address(text: str) -> tuple[str, int] | None:
    """Read `HOST:PORT`, `[IPV6]:PORT` or `none`."""
    if text == NOWHERE:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > _LAST_PORT:
        raise ConfigRefused(f"`{text}` is not HOST:PORT.", hint=f"Write {LISTEN}, or {NOWHERE} to serve nobody.")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104  an empty host means everywhere, and is checked


def read_file(path: Path) -> dict[str, Any]:
    """Read a file of options: a table `[agent]`, and `[plugins.oar]` as Alumet's own file has it."""
    try:
        tables = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigRefused(f"The options in {path} cannot be read: {error.strerror}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigRefused(f"The options in {path} are not TOML: {error}.") from error
    unknown = tables.keys() - {"agent", "plugins"}
    if unknown:
        raise ConfigRefused(f"{path} has the table `{min(unknown)}`.", hint="Options stand below [agent].")
    return {**_of_alumet(tables.get("plugins", {}).get("oar", {}), path), **tables.get("agent", {})}


def _of_alumet(table: Mapping[str, Any], path: Path) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for key, value in table.items():
        if key == "oar_version":
            if value not in OAR_VERSIONS:
                raise ConfigRefused(f"{path} says oar_version = {value!r}.", hint="It is oar2 or oar3.")
            options["layout"] = value
        elif key == "poll_interval":
            options["period"] = value
        elif key == "jobs_only":
            options["jobs_only"] = value
        else:
            raise ConfigRefused(f"{path} has the unknown key `{key}` in [plugins.oar].",
                                hint="Known are oar_version, poll_interval, jobs_only.")  # fmt: skip
    return options


def _needed(families: Iterable[str]) -> tuple[str, ...]:
    """Return the sources that families of names are made of and that are off otherwise."""
    return ("cores",) if "node" in families else ()


def _switched(sources: Iterable[str], enable: Any, disable: Any, needed: Iterable[str]) -> tuple[str, ...]:
    off = set(_words(disable))
    wanted = [name for name in (*sources, *_words(enable), *needed) if name not in off]
    for name in (*wanted, *off):
        if name not in assemble.ALL:
            raise ConfigRefused(f"There is no source `{name}`.", hint=f"There are {', '.join(assemble.ALL)}.")
    return tuple(dict.fromkeys(wanted))


def _words(value: Any) -> tuple[str, ...]:
    """Read words that stand one by one, or with commas or spaces between them."""
    texts: Sequence[str] = [value] if isinstance(value, str) else [str(word) for word in value]
    return tuple(word for text in texts for word in text.replace(",", " ").split())


def _events(value: Any) -> tuple[str, ...]:
    events = _words(value)
    for event in events:
        if event not in perf.EVENTS:
            raise ConfigRefused(f"There is no event `{event}`.", hint=f"Close to it is {_closest(event, perf.EVENTS)}.")
    return events


def _closest(word: str, candidates: Iterable[str]) -> str:
    import difflib

    return difflib.get_close_matches(word, candidates, 1, cutoff=0)[0]


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ConfigRefused(f"`{value}` is neither true nor false.")
    return value


def _listen(value: Any) -> str:
    address(str(value))
    return str(value)


def _path(value: Any) -> Path | None:
    return Path(value) if value else None


def _as_is(value: Any) -> str:
    return str(value)


_READERS = {
    "period": seconds, "listen": _listen, "jobs_only": _flag, "open_to_all": _flag, "sources": _words, "names": _words,
    "scratch": _words, "perf_events": _events, "layouts_file": _path, "names_file": _path, "tls_certificate": _path,
    "tls_key": _path, "token_file": _path, "scrape_token_file": _path, "ca": _path, "database": _path, "redfish": _path,
    "control_keys": _path, "colmet": _flag,
}  # fmt: skip


AUTO_LAYOUT = "auto"
_KEYS = {"about", "job", "inside", "is_job"}


def all_layouts(site: Path | None = None) -> dict[str, CgroupLayout]:
    """Return all layouts by name; those of a site's file stand first and replace ours of the same name."""
    theirs = {} if site is None else read_layouts(_text(site), str(site))
    ours = read_layouts(Path(__file__).with_name("layouts.toml").read_text(), "layouts.toml")
    everyone = {OARLOCK.name: OARLOCK, **ours}
    return {**theirs, **{name: layout for name, layout in everyone.items() if name not in theirs}}


def select_layouts(name: str, site: Path | None = None) -> list[CgroupLayout]:
    """Return the layouts to look for: one by name, or with `auto` all of them."""
    layouts = all_layouts(site)
    if name == AUTO_LAYOUT:
        return list(layouts.values())
    if name not in layouts:
        raise ConfigRefused(f"There is no layout `{name}`.", hint=f"Known are auto, {', '.join(layouts)}.")
    return [layouts[name]]


def read_layouts(text: str, where: str) -> dict[str, CgroupLayout]:
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
