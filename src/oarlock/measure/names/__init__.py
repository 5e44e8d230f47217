"""What measurements are called: our own names and those of other programs, as families that are switched by name.

A family of another program is a TOML file here; a site adds its own with `--names-file FILE`, in the same form:

    about = "whose names these are"
    scopes = ["job"]                       # `cgroup` too, where cgroups that are no jobs have these names; or `node`
    labels = { slurmjobid = "job" }        # label → what it says of the job: job, user, uid, account or node

    [names.slurm_job_core_usage_total]
    kind = "counter"
    help = "Nanoseconds on each core."
    of = "core_cpu_seconds_total"          # our metric, or a list of { metric = …, labels = { kind = "user" } }
    times = 1e9                            # our unit in theirs
    whole = true                           # rounded to a whole number
    form = "value"                         # `delta`: added since the last sample; `percent`: of the time passed
    rename = { exe = "proc_name" }         # labels of ours that they call otherwise
    drop = ["uuid"]                        # labels of ours that they do not have
    where = { meter = "redfish" }          # only those of our series that have these labels
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from oarlock.measure.metrics import MetricDefinition, MetricKind, catalogue
from oarlock.model.errors import ConfigRefused

OURS = "oarlock"
USUAL = (OURS, "slurm")
"""Families that are on by default."""
FORMS = ("value", "delta", "percent")
FIELDS = ("job", "user", "uid", "account", "node")
_FAMILY_KEYS = {"about", "scopes", "labels", "names"}
SCOPES = ("job", "cgroup", "node", "agent")
_NAME_KEYS = {"kind", "help", "of", "times", "whole", "form", "rename", "drop", "where"}


@dataclass(frozen=True, slots=True)
class MetricName:
    """What one of our metrics is called elsewhere, and how our value becomes theirs."""

    name: str
    kind: MetricKind
    help: str
    metric: str
    times: float = 1
    whole: bool = False
    form: str = "value"
    add: Mapping[str, str] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    drop: frozenset[str] = frozenset()
    where: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NameFamily:
    """Names that belong together. `labels` maps a label to what it says of the job; `names` are given by scope."""

    name: str
    about: str
    labels: Mapping[str, str]
    names: Mapping[str, Sequence[MetricName]]


def all_families(site: Path | None = None) -> dict[str, NameFamily]:
    """Return all families; that of a site's file (named as the file) replaces ours of the same name."""
    families = dict(_shipped())
    if site is not None:
        families[site.stem] = read(site.stem, _text(site), str(site))
    return families


@cache
def _shipped() -> Mapping[str, NameFamily]:
    files = sorted(Path(__file__).parent.glob("*.toml"))
    return {OURS: _ours(), **{file.stem: read(file.stem, file.read_text(), file.name) for file in files}}


def select_families(names: Iterable[str], site: Path | None = None) -> list[NameFamily]:
    """Return families by their names; refuse an unknown one with the list."""
    families = all_families(site)
    for name in names:
        if name not in families:
            raise ConfigRefused(f"There is no family of names `{name}`.", hint=f"There are {', '.join(families)}.")
    return [families[name] for name in dict.fromkeys(names)]


def prometheus_name(text: str) -> str:
    """Make a text a name that Prometheus takes: what it does not allow becomes an underscore."""
    return re.sub(r"[^a-zA-Z0-9_:]", "_", re.sub(r"\A[0-9]", "_", text))


def read(name: str, text: str, where: str) -> NameFamily:
    """Read a family from TOML; `where` names the file in a refusal."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigRefused(f"The names in {where} are not TOML: {error}.") from error
    _refuse_unknown_keys(table, _FAMILY_KEYS, where)
    labels = table.get("labels", {})
    for label, owner_field in labels.items():
        if owner_field not in FIELDS:
            raise ConfigRefused(
                f"The label `{label}` in {where} says `{owner_field}`.", hint=f"Known are {', '.join(FIELDS)}."
            )
    scopes = table.get("scopes", ["job"])
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise ConfigRefused(f"{where} has the scope `{', '.join(unknown)}`.", hint=f"Known are {', '.join(SCOPES)}.")
    rows = [
        metric
        for foreign_name, row in table.get("names", {}).items()
        for metric in _names(foreign_name, row, scopes, where)
    ]
    return NameFamily(name, table.get("about", name), labels, dict.fromkeys(scopes, rows))


def _is_measured(scope: str, metric: Any) -> bool:
    return ("job" if scope == "cgroup" else scope, metric) in catalogue()


def _names(called: str, row: Mapping[str, Any], scopes: Sequence[str], where: str) -> Iterator[MetricName]:
    _refuse_unknown_keys(row, _NAME_KEYS, f"`{called}` of {where}")
    sources = [{"metric": row["of"]}] if isinstance(row.get("of"), str) else row.get("of", [])
    for source in sources:
        if not all(_is_measured(scope, source.get("metric")) for scope in scopes):
            raise ConfigRefused(f"`{called}` of {where} is made of `{source.get('metric')}`, which is not measured.")
        if row.get("form", "value") not in FORMS:
            raise ConfigRefused(f"`{called}` of {where} has the unknown form `{row['form']}`.",
                                hint=f"Known are {', '.join(FORMS)}.")  # fmt: skip
        yield MetricName(
            prometheus_name(called), MetricKind(row.get("kind", "gauge")), row.get("help", called), source["metric"],
            row.get("times", 1), row.get("whole", False), row.get("form", "value"), source.get("labels", {}),
            row.get("rename", {}), frozenset(row.get("drop", ())), row.get("where", {}),
        )  # fmt: skip


def _refuse_unknown_keys(table: Mapping[str, Any], keys: set[str], where: str) -> None:
    unknown = sorted(table.keys() - keys)
    if unknown:
        raise ConfigRefused(f"{where} has the unknown key `{unknown[0]}`.",
                            hint=f"Known are {', '.join(sorted(keys))}.")  # fmt: skip


def _ours() -> NameFamily:
    everything = [row for row in catalogue().values() if row.own]
    names = {scope: [_own(row, row.full_name) for row in everything if row.scope == scope] for scope in _scopes()}
    names["cgroup"] = [_own(row, f"{OURS}_cgroup_{row.name}") for row in everything if row.scope == "job"]
    return NameFamily(OURS, "our own, in base units", {"job_id": "job", "user": "user", "account": "account"}, names)


def _scopes() -> list[str]:
    return list(dict.fromkeys(scope for scope, _ in catalogue()))


def _own(row: MetricDefinition, called: str) -> MetricName:
    return MetricName(called, row.kind, row.help, row.name)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise ConfigRefused(f"The names in {path} cannot be read: {error.strerror}.") from error
