"""Where measurements lie: the folder `samples` of the state directory."""

import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

# A node of another cluster than the one that has its name is called after its cluster: `n7@beta`.
_NODE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*(@[A-Za-z0-9_.-]+)?")
_LOG, _FILE, _THIN = ".rows", ".h5", ".thin.h5"
_LEFT_TO_SERVER = 64 << 20  # four times the reserve that the server gives up when its disk is full
_SHARE_LEFT = 20
_GROUP = 3  # digits of a job's number that name a folder


class DiskRoom(NamedTuple):
    """The disk of the measurements: bytes in all, and those that are free for this user."""

    total: int
    free: int

    @property
    def free_percent(self) -> float:
        """How much of it is free."""
        return 100 * self.free / max(self.total, 1)

    @property
    def is_left_to_server(self) -> bool:
        """Whether what is free is needed by the server: its database must go on, and its reserve stay."""
        return self.free < min(_LEFT_TO_SERVER, self.total // _SHARE_LEFT)


class SamplePlaces:
    """The files below one folder. Nobody but the server's user can enter it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.live, self.nodes, self.temporary = root / "live", root / "nodes", root / "temporary"

    def prepare(self) -> None:
        """Create the folders, and delete what was left unfinished."""
        for folder in (self.root, self.live, self.nodes):
            folder.mkdir(0o700, exist_ok=True)
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(0o700, exist_ok=True)

    def room(self) -> DiskRoom:
        """Return how much room the disk has."""
        about = os.statvfs(self.root)
        return DiskRoom(about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize)

    def log(self, job: int) -> Path:
        """Return the row log of a job that runs."""
        return self.live / f"{job}{_LOG}"

    def logged_jobs(self) -> set[int]:
        """Return the jobs that have a row log."""
        try:
            names = os.listdir(self.live)  # noqa: PTH208 - a path object for each of thousands costs more
        except FileNotFoundError:
            return set()
        return {int(name.removesuffix(_LOG)) for name in names if re.fullmatch(rf"\d+{re.escape(_LOG)}", name)}

    def archived(self, job: int) -> Path:
        """Return the file of a job that is over: `041/302/41302.h5`."""
        digits = str(job)
        digits = digits.zfill(max(2 * _GROUP, -(-len(digits) // _GROUP) * _GROUP))
        groups = [digits[at : at + _GROUP] for at in range(0, len(digits), _GROUP)]
        return self.root.joinpath(*groups) / f"{job}{_FILE}"

    def kept(self, job: int) -> Path | None:
        """Return the file of a job that is over, whole or thinned; None if it has none."""
        whole = self.archived(job)
        thinned = whole.with_name(f"{job}{_THIN}")
        return next((path for path in (whole, thinned) if path.exists()), None)

    def archived_jobs(self) -> Iterator[tuple[int, Path]]:
        """Yield the jobs that have a file, by number."""
        for folder in sorted(self.root.glob("[0-9]*"), key=lambda folder: (len(folder.name), folder.name)):
            for path in sorted(folder.rglob(f"*{_FILE}")):
                number = path.name.partition(".")[0]
                if number.isdecimal():
                    yield int(number), path

    def node_log(self, node: str, at: float) -> Path:
        """Return the row log of a node for the day of an instant (epoch seconds, UTC)."""
        if not is_node_name(node):
            raise ValueError(f"{node!r} is no name of a node")
        return self.nodes / node / f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}{_LOG}"

    def node_files(self, node: str) -> list[Path]:
        """Return the row logs and files of a node, by day."""
        return sorted(self.nodes.joinpath(node).glob("*-*.*")) if is_node_name(node) else []


def is_thinned(path: Path) -> bool:
    """Return whether a file has stretches instead of samples."""
    return path.name.endswith(_THIN)


def is_node_name(name: object) -> bool:
    """Return whether this may be the name of a node, and of its folder."""
    return isinstance(name, str) and _NODE.fullmatch(name) is not None


def day_of(path: Path) -> float:
    """Return when the day of a node's log or file begins (epoch seconds)."""
    return datetime.strptime(path.name.partition(".")[0], "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
