"""The commands that jobs find on every node: `oarsh`, `oarcp` and `oarprint`, written where only we can write.

They are one file with all sources in it, under three names: nodes need nothing but Python. It is replaced in one step,
so that a job that was started before a newer program came finds the newer commands, and never half of a file.
"""

from __future__ import annotations

import os
import sys

from oarlock.node import trust
from oarlock.node.attempt.spool import write_all
from oarlock.node.attempt.user.command import KEEP_TOOLS, PATH_FILE

COMMANDS = ("oarsh", "oarcp", "oarprint")
SLURM_COMMANDS = ("srun",)
"""In a folder of their own, which only jobs of `sbatch` have in their PATH: a node may have Slurm's."""
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
    "oarlock.cli.slurm",
    "oarlock.cli.slurm.srun",
    "oarlock.cli.submitting",
    "oarlock.cli.submitting.job_keys",
    "oarlock.client",
    "oarlock.minimal_http",
    "oarlock.node",
    "oarlock.node.slurm_tasks",
    "oarlock.node.wire",
    "oarlock.node.wire.stream",
)
"""What the commands are made of. They import nothing else, and run on the same Pythons as the rest of `node/`."""

_LOADER = "oarlock.node.program.loader"


def write_tools(folder: str, sources: dict[str, str]) -> None:
    """Write the commands into a folder; raise `UnsafeDirectory` if others can write there.

    Where they cannot be written, as on a full disk, jobs run all the same, without them.
    """
    try:
        trust.prepare(folder, 0o755)
        trust.prepare(f"{folder}/slurm", 0o755)
        for name in COMMANDS:
            _replace(f"{folder}/{name}", _script(sources, "oarlock.cli.jobs"))
        for name in SLURM_COMMANDS:
            _replace(f"{folder}/slurm/{name}", _script(sources, "oarlock.cli.slurm"))
        _replace(f"{folder}/{PATH_FILE}", f"{KEEP_TOOLS.format(folder=folder)}\n".encode())
    except OSError as error:
        sys.stderr.write(f"oarsh, oarcp and oarprint cannot be written into {folder}: {error}\n")


def _script(sources: dict[str, str], package: str) -> bytes:
    needed = {name: sources[name] for name in MODULES}
    text = f"#!{sys.executable} -IS\n{sources[_LOADER]}\nSOURCES = {needed!r}\nrun_command(SOURCES, {package!r})\n"
    return text.encode()


def _replace(path: str, data: bytes) -> None:
    """Write a file unless it is there already; whoever runs the older one keeps it."""
    try:
        with open(path, "rb") as file:
            if file.read() == data:
                return
    except OSError:
        pass
    new = f"{path}.new"
    if os.path.lexists(new):
        os.unlink(new)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o755)
    try:
        write_all(fd, data)
        os.fchmod(fd, 0o755)
        os.rename(new, path)
    except BaseException:
        os.unlink(new)
        raise
    finally:
        os.close(fd)
