"""What tests of measuring share: recorded cases, recorded trees and real cgroups."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from oarlock.node.measure.discovery import CgroupDirectory, FoundCgroup
from oarlock.node.measure.layout import CgroupIdentity
from oarlock.node.sources.files import UNIFIED, Hierarchy, mounted_hierarchies
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT.parent / "shared" / "data" / "monitoring-cases.json"
_numbers = count()


def cases(kind: str) -> list[Any]:
    """Give the recorded cases of one kind as parameters; one skipped parameter where the data is not there."""
    if not CASES.exists():
        return [pytest.param(None, marks=pytest.mark.skip(reason="the recorded cases of peers are not here"))]
    found = [case for case in json.loads(CASES.read_text())["cases"] if case["kind"] == kind]
    return [pytest.param(case, id=case["id"]) for case in found]


def recorded(folder: Path, files: Mapping[str, str]) -> Path:
    """Write a tree of files, as it was recorded somewhere."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def job_at(directories: Mapping[str, Path | str], job: str = "1") -> FoundCgroup:
    """Give a job whose directory for each controller is known."""
    found = FoundCgroup(CgroupIdentity("oarlock", job, user="ada"))
    for controller, directory in directories.items():
        found.add(CgroupDirectory(Hierarchy(str(directory), (controller,)), ""))
    return found


class Groups:
    """Real cgroups of one test, in every hierarchy of this machine, all under one name that is ours alone."""

    def __init__(self) -> None:
        self.name = f"oarlock-test-{os.getpid()}-{next(_numbers)}"
        self._real = mounted_hierarchies()
        self.hierarchies = [Hierarchy(f"{real.root}/{self.name}", real.controllers) for real in self._real]
        for hierarchy in self.hierarchies:
            self._make(Path(hierarchy.root))

    def make(self, path: str, *controllers: str) -> dict[str, Path]:
        """Make a group, with its parents, in all hierarchies or in those of some controllers."""
        made = {}
        for hierarchy in self.hierarchies:
            if not controllers or set(hierarchy.controllers) & set(controllers):
                directory = Path(hierarchy.root)
                for part in path.split("/"):
                    directory /= part
                    self._make(directory)
                made.update(dict.fromkeys(hierarchy.controllers, directory))
        return made

    def remove(self, path: str, *controllers: str) -> None:
        """Remove a group and what is inside it."""
        for hierarchy in self.hierarchies:
            if not controllers or set(hierarchy.controllers) & set(controllers):
                _remove_tree(Path(hierarchy.root) / path)

    def join(self, directories: Mapping[str, Path], pid: int) -> None:
        """Put a process into a group."""
        for directory in set(directories.values()):
            (directory / "cgroup.procs").write_text(str(pid))

    def clean(self) -> None:
        """Remove every group."""
        for hierarchy in self.hierarchies:
            _remove_tree(Path(hierarchy.root))

    def _make(self, directory: Path) -> None:
        if directory.is_dir():
            return
        directory.mkdir()
        # A cpuset takes no process before it is told which CPUs and memory it has.
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (directory / name).exists() and UNIFIED not in str(directory):
                (directory / name).write_text((directory.parent / name).read_text())


def _remove_tree(directory: Path) -> None:
    for inner in sorted(directory.glob("**/"), reverse=True):
        wait_until(lambda inner=inner: _removed(inner), f"{inner} to be empty")  # type: ignore[misc]


def _removed(directory: Path) -> bool:
    with suppress(FileNotFoundError):
        try:
            directory.rmdir()
        except OSError:
            return False
    return True


def has_cgroups() -> bool:
    """Whether this process may make cgroups of version 1 here."""
    return os.geteuid() == 0 and any("cpuacct" in hierarchy.controllers for hierarchy in mounted_hierarchies())


@contextmanager
def real_groups() -> Iterator[Groups]:
    """Make groups, and remove them whatever happens."""
    groups = Groups()
    try:
        yield groups
    finally:
        groups.clean()


needs_cgroups = pytest.mark.skipif(
    not has_cgroups() and os.environ.get("CI", "").lower() not in {"true", "1"},
    reason="no version 1 cgroups that this user may make, so measuring real jobs is not tested (run as root)",
)
"""With CI=true nothing is left out: the tests then fail where cgroups are missing."""
