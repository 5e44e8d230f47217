"""What is left on this machine of attempts whose server is gone.

A supervisor outlives its server on purpose: a server that restarts finds its jobs running. So a supervisor counts as
left over only where the file of its attempt was removed, which no server can ever find again, or where the
administrator names a spool whose server will not come back. Groups and files count where no supervisor has them.

Nothing that a user wrote is believed: a supervisor is a process of ours that holds the lock of a file which begins
with the launch of an attempt, and groups and files are looked for only where root alone can make them.
"""

import glob
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from oarlock.node.attempt.spool import Key
from oarlock.node.attempt.user import logind
from oarlock.node.cgroup import drivers
from oarlock.node.cgroup.base import ROOT, CgroupMounts
from oarlock.node.cgroup.processes import descendants

# A supervisor opened its file by its first name, which the kernel shows for ever; the attempt is in the file.
_ENTRY = re.compile(r"(?P<spool>/.*)/(?:new\.\d+|\d+\.\d+)(?: \(deleted\))?")
_GROUP = re.compile(r"(?:.+_|[a-z]+\.)(?P<job>\d+)(?:\.(?P<pid>\d+))?")
_FILE = re.compile(r"(?P<job>\d+)\.(?P<attempt>\d+)\.(?:nodes|resources|key)")
_IN_SPOOL = re.compile(r"\d+\.\d+(?:\.control)?|new\.\d+")
_LINGER_LINE = re.compile(r"oarlock (?P<node>\S+) (?P<job>\d+)\.(?P<attempt>\d+)")
_LONGEST_LAUNCH = 16 << 20
_PLACES = (Path("/var/lib/oarlock/node"), Path("/run/oarlock"))  # of a node's spool and of the files that jobs read


@dataclass(frozen=True, slots=True)
class SupervisorProcess:
    """A supervisor, by the file of the attempt that it holds."""

    pid: int
    spool: Path
    key: Key
    user: str
    is_orphan: bool  # nobody can read what it will report

    @property
    def name(self) -> str:
        """Return the attempt as its file is named."""
        return f"{self.key[0]}.{self.key[1]}"


@dataclass(frozen=True, slots=True)
class JobGroup:
    """A group of a job, in every hierarchy where it is."""

    path: str  # below the roots
    places: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What is left, and what was looked at and is not."""

    supervisors: tuple[SupervisorProcess, ...]
    groups: tuple[JobGroup, ...]
    files: tuple[Path, ...]
    lingering: tuple[tuple[Path, str], ...]  # files of logind, each with the line that is ours
    living: int  # supervisors whose server may come back


def find(gone: Path | None = None, *, mounts: CgroupMounts | None = None) -> Leftovers:
    """Find what is left; with `gone` only what belongs to spools in this directory, whose server will not come back.

    Groups and files are listed before supervisors: what a supervisor makes later than that is not in the lists.
    """
    groups = list(list_groups(mounts or drivers.mounted()))
    lines = [] if gone else list(_linger_lines())
    spools = list(_spools_below(gone)) if gone else [_PLACES[0]]
    files = [path for spool in spools for path in _runtime_files(spool)]
    everybody = list_supervisors()
    left = [process for process in everybody if _is_left(process, gone)]
    living = [process for process in everybody if process not in left]
    files += [path for process in left if process.spool not in spools for path in _runtime_files(process.spool)]
    kept_files = {(runtime_of(process.spool), process.key) for process in living}
    return Leftovers(
        supervisors=tuple(left),
        groups=tuple(_unused(groups, left, None if gone else {process.key[0] for process in living})),
        files=(*_unowned(files, kept_files, gone), *(path for spool in spools if gone for path in _spool_files(spool))),
        lingering=tuple((path, line) for path, line, key in lines if key not in {process.key for process in living}),
        living=sum(not process.is_orphan for process in living),
    )


def _is_left(process: SupervisorProcess, gone: Path | None) -> bool:
    return process.spool.is_relative_to(gone) if gone else process.is_orphan


# Processes.


def list_supervisors() -> list[SupervisorProcess]:
    """List the supervisors of this machine that work on an attempt."""
    pids = (int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit())
    return [process for pid in pids if (process := read_supervisor(pid)) is not None]


def read_supervisor(pid: int) -> SupervisorProcess | None:
    """Return the supervisor of this number; `None` if the process is gone, another user's or anything else."""
    folder = Path(f"/proc/{pid}/fd")
    try:
        if folder.stat().st_uid != os.geteuid():
            return None
        for descriptor in folder.iterdir():
            match = _ENTRY.fullmatch(str(descriptor.readlink()))
            if match and (process := _read_entry(pid, descriptor, Path(match["spool"]))) is not None:
                return process
    except OSError:
        return None
    return None


def _read_entry(pid: int, descriptor: Path, spool: Path) -> SupervisorProcess | None:
    if "FLOCK" not in Path(f"/proc/{pid}/fdinfo/{descriptor.name}").read_text():
        return None
    # The file itself, also where it has no name any more.
    with descriptor.open("rb") as file:
        launch = _parse_launch(file.read(_LONGEST_LAUNCH).partition(b"\n")[0])
        is_removed = os.fstat(file.fileno()).st_nlink == 0
    if launch is None:
        return None
    key, user = launch
    return SupervisorProcess(pid, spool, key, user, is_orphan=is_removed)


def _parse_launch(line: bytes) -> tuple[Key, str] | None:
    """Parse the first line of a spool file: the attempt and its user; `None` if it is not a launch."""
    mac, _, text = line.partition(b" ")
    try:
        launch = json.loads(text) if re.fullmatch(rb"[0-9a-f]{64}", mac) else None
    except ValueError:
        return None
    if not isinstance(launch, dict):
        return None
    job, attempt = launch.get("job"), launch.get("attempt")
    return ((job, attempt), str(launch.get("user", ""))) if isinstance(job, int) and isinstance(attempt, int) else None


# Groups.


def list_groups(mounts: CgroupMounts) -> Iterator[JobGroup]:
    """Yield the groups of jobs and of scripts of the site, of all nodes that share this machine."""
    places: dict[str, list[Path]] = {}
    for base in dict.fromkeys([*mounts.v1.values(), *([mounts.v2] if mounts.v2 else [])]):
        for pattern in (f"{ROOT}/*/*/", f"{drivers.SLICE}/oarlock-*.scope/*/"):
            for place in map(Path, glob.iglob(f"{base}/{pattern}")):  # noqa: PTH207  (Path.glob fails where a group goes)
                if _GROUP.fullmatch(place.name) and place.is_dir():
                    places.setdefault(str(place.relative_to(base)), []).append(place)
    for path, where in sorted(places.items()):
        yield JobGroup(path, tuple(where))


def _is_used(group: JobGroup, jobs: set[int]) -> bool:
    """Return whether a supervisor works on its job, or the process that made it for a program of the site lives."""
    match = _GROUP.fullmatch(Path(group.path).name)
    if match is None or int(match["job"]) in jobs:
        return True
    return match["pid"] is not None and Path(f"/proc/{match['pid']}").exists()


def _unused(groups: Sequence[JobGroup], left: Sequence[SupervisorProcess], jobs: set[int] | None) -> Iterator[JobGroup]:
    """Yield the groups that processes below these supervisors are in; with `jobs`, those of other jobs as well."""
    members = {path for process in left for pid in descendants(process.pid) for path in _memberships(pid)}
    for group in groups:
        if f"/{group.path}" in members or (jobs is not None and not _is_used(group, jobs)):
            yield group


def _memberships(pid: int) -> list[str]:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return []
    return [line.split(":", 2)[2] for line in lines]


# Files.


def _spools_below(directory: Path) -> Iterator[Path]:
    """Yield the spools in a directory: that itself, or those of the nodes of a server on this machine."""
    for place in (directory, directory / "spool", *sorted((directory / "spool").glob("*/"))):
        if (place / "highest").exists():
            yield place


def runtime_of(spool: Path) -> Path:
    """Return where jobs find the files that were written for them, from the place of the spool."""
    if spool == _PLACES[0]:
        return _PLACES[1]
    if spool.name == "spool":
        return spool.parent / "run"
    return spool.parent.parent / "run" / spool.name


def _runtime_files(spool: Path) -> list[Path]:
    """List the files of attempts in the runtime directory that belongs to a spool."""
    try:
        return [path for path in runtime_of(spool).iterdir() if _FILE.fullmatch(path.name)]
    except OSError:
        return []


def _unowned(files: Sequence[Path], kept: set[tuple[Path, Key]], gone: Path | None) -> Iterator[Path]:
    """Yield the files whose attempt has no supervisor, and no file in the spool that a server may ask for."""
    for path in files:
        match = _FILE.fullmatch(path.name)
        if match is None or (path.parent, (key := (int(match["job"]), int(match["attempt"])))) in kept:
            continue
        if gone or not any((spool / f"{key[0]}.{key[1]}").exists() for spool in _spools_of(path.parent)):
            yield path


def _spools_of(runtime: Path) -> list[Path]:
    """Return where the spool of a runtime directory can be: the other way round of `runtime_of`."""
    if runtime == _PLACES[1]:
        return [_PLACES[0]]
    return [runtime.parent / "spool", runtime.parent.parent / "spool" / runtime.name]


def _spool_files(spool: Path) -> list[Path]:
    """List what attempts have in a spool; the highest number of a job stays, so that none is used twice."""
    attempts = [path for path in spool.iterdir() if _IN_SPOOL.fullmatch(path.name)]
    brought = [
        path for folder in ("files", "out", "undelivered") for path in (spool / folder).glob("*") if path.is_file()
    ]
    return sorted(attempts) + sorted(brought)


def _linger_lines() -> Iterator[tuple[Path, str, Key]]:
    """Yield the lines by which users are kept logged in for attempts."""
    try:
        paths = [path for path in Path(logind.DIRECTORY).iterdir() if not path.name.startswith(".")]
    except OSError:
        return
    for path in paths:
        for line in path.read_text(errors="replace").splitlines():
            if match := _LINGER_LINE.fullmatch(line):
                yield path, line, (int(match["job"]), int(match["attempt"]))
