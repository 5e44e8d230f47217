"""Whose cgroup is this: from the path of a cgroup to the job, its owner and its step.

A layout is data (`measure/layouts.toml` holds those of other resource managers): path templates of a job's own
directory, and templates of what may stand inside it. In a template

    **           is any number of directories, also none
    {job}        is a field; its shape is in `SHAPES`, else it is the rest of that part of the path
    [step_]      is text that may be missing

and a field that appears twice must read the same twice. The first template that fits wins.

What a path does not say (the account, the number behind a name) the environment of the job's processes may. A user can
change that; whoever needs the word of the resource manager asks it (`--look-up`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from oarlock.node.sources.files import open_briefly, read_list

SHAPES: Mapping[str, str] = {
    "job": r"\d+",
    "uid": r"\d+",
    "number": r"\d+",
    "sluid": r"s[0-9A-Z]{13}",
    "suffix": r"(?:[-.][^/]*)?",
    "pod": r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}",
}
_TOKEN = re.compile(r"(?P<any>\*\*/?)|\{(?P<field>[a-z]+)\}|\[(?P<maybe>[^\]]*)\]|(?P<text>[^*{\[]+)")


class CgroupIdentity(NamedTuple):
    """What a path says. `job` is text, as not all ids are numbers; None is "the path does not say"."""

    layout: str
    job: str
    user: str | None = None
    uid: int | None = None
    account: str = ""  # as the job's environment has it
    host: str | None = None  # the node's name, where several nodes share a machine
    level: str = "job"  # the job's own directory, or which part of it this is
    step: str | None = None
    part: str | None = None  # Slurm's `user` or `slurm` below a step
    task: str | None = None
    details: tuple[tuple[str, str], ...] = ()  # fields that only this layout has

    @property
    def key(self) -> tuple[str, str, str]:
        """What makes it one job on this machine: layout, node name, job."""
        return (self.layout, self.host or "", self.job)


class CgroupLayout:
    """The places one resource manager gives to its jobs.

    `jobs` are templates of a job's directory; `inside` pairs a level with a template relative to it; `is_job` is
    false for cgroups that are measured only on demand (login sessions, pods).
    """

    def __init__(
        self, name: str, jobs: Sequence[str], inside: Iterable[tuple[str, str]] = (), *, is_job: bool = True
    ) -> None:
        self.name, self.is_job = name, is_job
        self._jobs = [re.compile(rf"/?{_regex(template)}(?:/(?P<rest>.*))?") for template in jobs]
        self._inside = [(level, re.compile(_regex(template))) for level, template in inside]
        self._on_the_way = [re.compile(pattern) for template in jobs for pattern in _ancestor_patterns(template)]

    def match(self, path: str) -> CgroupIdentity | None:
        """Parse a path, relative to the root of its hierarchy; None when it is not of this layout."""
        for template in self._jobs:
            matched = template.fullmatch(path.rstrip("/"))
            if matched:
                fields = {name: value for name, value in matched.groupdict().items() if value is not None}
                return self._identity(fields, fields.pop("rest", ""))
        return None

    def inside(self, rest: str) -> dict[str, str] | None:
        """Read the part of a path below a job's directory into its level and fields; None when there is none."""
        rest = "/".join(part for part in rest.split("/") if part)
        if not rest:
            return None
        for level, template in self._inside:
            matched = template.fullmatch(rest)
            if matched:
                return {"level": level, **{name: value for name, value in matched.groupdict().items() if value}}
        return {"level": "inside"}

    def on_the_way(self, path: str) -> bool:
        """Return whether directories of jobs may appear below this one."""
        return any(pattern.fullmatch(path.strip("/")) for pattern in self._on_the_way)

    def _identity(self, fields: dict[str, str], rest: str) -> CgroupIdentity:
        fields.update(self.inside(rest) or {})
        texts = {name: fields.pop(name) for name in _TEXTS if name in fields}
        uid = fields.pop("uid", None)
        fields.pop("suffix", None)
        job = fields.pop("job", None) or next((fields[name] for name in _NAMES if name in fields), uid or "")
        host = fields.pop("node", None) or fields.pop("host", None)
        details = tuple(sorted((name, _plain(name, value)) for name, value in fields.items()))
        return CgroupIdentity(self.name, job, uid=int(uid) if uid else None, host=host, details=details, **texts)


_TEXTS = ("user", "level", "step", "part", "task")
_NAMES = ("sluid", "pod", "name")  # what stands for a job's number where there is none


def match(layouts: Iterable[CgroupLayout], path: str) -> CgroupIdentity | None:
    """Parse a path with the first layout that matches."""
    for layout in layouts:
        identity = layout.match(path)
        if identity:
            return identity
    return None


def _regex(template: str) -> str:
    """Turn a template into a regular expression with one named group a field."""
    pattern, seen, at = "", set[str](), 0
    while at < len(template):
        token = _TOKEN.match(template, at)
        if token is None:
            raise ValueError(f"the path template {template!r} cannot be read from position {at} on")
        pattern += _piece(token, seen)
        at = token.end()
    return pattern


def _piece(token: re.Match[str], seen: set[str]) -> str:
    field = token["field"]
    if token["any"]:
        # As few directories as will do: the outermost match is the job, what follows is inside it.
        return "(?:[^/]+/)*?" if token["any"].endswith("/") else ".*"
    if token["maybe"] is not None:
        return f"(?:{re.escape(token['maybe'])})?"
    if field in seen:
        return f"(?P={field})"
    if field:
        seen.add(field)
        return f"(?P<{field}>{SHAPES.get(field, '[^/]+')})"
    return re.escape(token["text"])


def _ancestor_patterns(template: str) -> list[str]:
    """Return a pattern for each ancestor of a job's directory that the template names."""
    parts = template.split("/")
    ancestors = ["/".join(parts[:end]) for end in range(1, len(parts))]
    return [_regex(ancestor) for ancestor in ancestors if ancestor != "**"]


def _plain(field: str, value: str) -> str:
    """Undo what systemd does to names in paths."""
    if field == "pod":
        return value.replace("_", "-")
    return re.sub(r"\\x([0-9a-f]{2})", lambda code: chr(int(code[1], 16)), value)


_OURS = ("**/oarlock/{node}/{user}_{job}", "**/oarlock.slice/oarlock-{node}.scope/{user}_{job}")

OARLOCK = CgroupLayout("oarlock", _OURS)
"""The only layout that travels to nodes; the others are read from `measure/layouts.toml`."""


def layout_of_node(node: str) -> CgroupLayout:
    """Return the layout of the jobs of one node only: other nodes may share its kernel."""
    return CgroupLayout("oarlock", [template.replace("{node}", node) for template in _OURS])


_PROCESSES = 32
_BYTES = 1 << 20


class _Variables(NamedTuple):
    job: str
    account: str
    name: str = ""  # holds what stands for the number in the path of the cgroup


_OAR = _Variables("OAR_JOB_ID", "OAR_PROJECT_NAME")
_VARIABLES: Mapping[str, _Variables] = {
    "slurm": _Variables("SLURM_JOB_ID", "SLURM_JOB_ACCOUNT", "SLURM_JOB_SLUID"),
    "oar2": _OAR,
    "oar3": _OAR,
}


def identify(identity: CgroupIdentity, directories: Sequence[str], proc: str = "/proc") -> tuple[CgroupIdentity, bool]:
    """Add what a process's environment says to what the path says; false while a later look may find more.

    A process that does not execute the job's own program yet has the environment of whoever started it.
    """
    variables = _VARIABLES.get(identity.layout)
    if variables is None:
        return identity, True
    for pid in _processes(directories):
        try:
            environment = _environment(proc, pid)
        except PermissionError:
            return identity, True
        number = _value(environment, variables.job) or ""
        if number.isdigit():
            identified = identity._replace(account=_value(environment, variables.account) or "")
            is_named = not identity.job.isdigit() and _value(environment, variables.name) in {None, identity.job}
            return identified._replace(job=number) if is_named else identified, True
    return identity, False


def _processes(directories: Sequence[str]) -> Iterator[int]:
    count = 0
    for directory in directories:
        fd = open_briefly(directory, "cgroup.procs")
        if fd is None:
            continue
        try:
            pids = read_list(fd).split()
        except OSError:  # a step that ended meanwhile
            continue
        finally:
            os.close(fd)
        for pid in pids[: _PROCESSES - count]:
            yield int(pid)
            count += 1


def _environment(proc: str, pid: int) -> bytes:
    """Read a process's environment as it was when it began, a NUL before each variable; empty when it is gone."""
    try:
        with open(f"{proc}/{pid}/environ", "rb") as file:
            return b"\0" + file.read(_BYTES)
    except PermissionError:
        raise
    except OSError:
        return b""


def _value(environment: bytes, name: str) -> str | None:
    """Find one variable. An environment is long and two of its variables are wanted, so it is not taken apart."""
    if not name:
        return None
    start = f"\0{name}=".encode()
    at = environment.find(start)
    if at < 0:
        return None
    return environment[at + len(start) :].partition(b"\0")[0].decode("utf-8", "replace")
