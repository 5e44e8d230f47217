"""The commands that jobs find on every node: `oarsh`, `oarcp` and `oarprint`, written where only we can write.

They are one file with all sources in it, to which the other names lead: nodes need nothing but Python. It is replaced
in one step, so that a job that was started before a newer program came finds the newer commands, never half of a file.
Its second line and its last one name the sources, so that a start of the node program reads no more than these.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping

from oarlock.node import trust
from oarlock.node.attempt.spool import write_all
from oarlock.node.attempt.user.command import KEEP_TOOLS, PATH_FILE

FILE = "oarsh"
LINKS = {"oarx11": FILE, "oarcp": FILE, "oarprint": FILE, "slurm/scontrol": f"../{FILE}", "slurm/srun": f"../{FILE}"}
"""Slurm's commands are in a folder that only jobs of `sbatch` have in their PATH: a node may have Slurm's own."""
PACKAGES = {
    "oarsh": "oarlock.cli.jobs",
    "oarcp": "oarlock.cli.jobs",
    "oarprint": "oarlock.cli.jobs",
    "oarx11": "oarlock.node",
    "scontrol": "oarlock.cli.slurm",
    "srun": "oarlock.cli.slurm",
}
MODULES = (
    "oarlock",
    "oarlock.cli",
    "oarlock.cli.exit_codes",
    "oarlock.cli.jobs",
    "oarlock.cli.jobs.oarcp",
    "oarlock.cli.jobs.oarprint",
    "oarlock.cli.jobs.oarsh",
    "oarlock.cli.layout",
    "oarlock.cli.layout.readable",
    "oarlock.cli.options",
    "oarlock.cli.output",
    "oarlock.cli.sessions",
    "oarlock.cli.sessions.session",
    "oarlock.cli.sessions.terminal",
    "oarlock.cli.sessions.x11",
    "oarlock.cli.slurm",
    "oarlock.cli.slurm.scontrol",
    "oarlock.cli.slurm.srun",
    "oarlock.cli.submitting",
    "oarlock.cli.submitting.job_keys",
    "oarlock.client",
    "oarlock.client_connection",
    "oarlock.minimal_http",
    "oarlock.model",
    "oarlock.model.nodeset",
    "oarlock.node",
    "oarlock.node.oarx11",
    "oarlock.node.slurm_tasks",
    "oarlock.node.wire",
    "oarlock.node.wire.stream",
)
"""What the commands are made of. They import nothing else, and run on the same Pythons as the rest of `node/`."""

_LOADER = "oarlock.node.program.loader"


def write_tools(folder: str, sources: Mapping[str, str], fingerprint: str) -> None:
    """Write the commands into a folder; raise `UnsafeDirectory` if others can write there.

    Where they cannot be written, as on a full disk, jobs run all the same, without them.
    """
    try:
        trust.prepare(folder, 0o755)
        trust.prepare(f"{folder}/slurm", 0o755)
        mark = f"# {fingerprint}\n".encode()
        first = f"#!{sys.executable} -IS\n".encode() + mark
        if not fingerprint or not _is_between(f"{folder}/{FILE}", first, mark):
            _replace(f"{folder}/{FILE}", lambda new: _write(new, first + _script(sources) + mark))
        for name, target in LINKS.items():
            _link(f"{folder}/{name}", target)
        _write_path_file(f"{folder}/{PATH_FILE}", f"{KEEP_TOOLS.format(folder=folder)}\n".encode())
    except OSError as error:
        sys.stderr.write(f"oarsh, oarcp and oarprint cannot be written into {folder}: {error}\n")


def _script(sources: Mapping[str, str]) -> bytes:
    needed = {name: sources[name] for name in MODULES}
    return f"{sources[_LOADER]}\nSOURCES = {needed!r}\nrun_command(SOURCES, {PACKAGES!r})\n".encode()


def _is_between(path: str, first: bytes, last: bytes) -> bool:
    """Return whether a file begins and ends with these bytes."""
    try:
        with open(path, "rb") as file:
            begins = file.read(len(first)) == first
            file.seek(-len(last), os.SEEK_END)
            return begins and file.read() == last
    except OSError:  # it is not there, or shorter
        return False


def _link(path: str, target: str) -> None:
    """Make a name that leads to the file; older programs wrote a file of its own."""
    try:
        if os.readlink(path) == target:
            return
    except OSError:
        pass
    _replace(path, lambda new: os.symlink(target, new))


def _write_path_file(path: str, data: bytes) -> None:
    try:
        with open(path, "rb") as file:
            if file.read() == data:
                return
    except OSError:
        pass
    _replace(path, lambda new: _write(new, data))


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755)
    try:
        write_all(fd, data)
        os.fchmod(fd, 0o755)
    finally:
        os.close(fd)


def _replace(path: str, make: Callable[[str], None]) -> None:
    """Put what `make` makes in the place of a file; whoever runs the older one keeps it."""
    new = f"{path}.new"
    if os.path.lexists(new):
        os.unlink(new)
    try:
        make(new)
        os.rename(new, path)
    except BaseException:
        if os.path.lexists(new):
            os.unlink(new)
        raise
