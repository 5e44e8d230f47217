"""oarcp: copy files to and from nodes of a job: scp, with oarsh as its way to a host."""

from __future__ import annotations

import os
import shutil
import sys

from oarlock.cli.jobs.oarsh import explain
from oarlock.cli.options import CommandOptions
from oarlock.cli.output import show_text

OPTIONS = CommandOptions(
    "oarcp",
    "Copy files to and from nodes of a job, as scp does.",
    usage=("[SCP-OPTION]... SOURCE... TARGET",),
    about="The job is $OAR_JOB_ID; options are those of scp, which reaches the nodes by oarsh.",
)
OPTIONS.flag("-h --help", "show this help and exit")
OPTIONS.flag("-V --version", "show the version and exit")
OPTIONS.example("oarcp input.dat node3:/tmp/", "copy a file to a node of the job")


def main() -> int:
    """Replace this process by scp."""
    if sys.argv[1:2] in (["-h"], ["--help"], ["-V"], ["--version"]):
        return explain(OPTIONS, sys.argv[1])
    if not sys.argv[1:]:
        show_text("oarcp: oarcp takes files, and where they go.\n  oarcp FILE... HOST:TARGET", file=sys.stderr)
        return 1
    scp, oarsh = shutil.which("scp"), _oarsh()
    if scp is None or oarsh is None:
        missing = "scp" if scp is None else "oarsh"
        show_text(f"oarcp: `{missing}` is not in $PATH.\n  Install it, or copy by `oarsh HOST cat`.", file=sys.stderr)
        return 1
    # -O: the old protocol, which needs scp alone on the node; the new one wants an sftp server.
    os.execv(scp, ["scp", "-O", "-S", oarsh, *sys.argv[1:]])  # noqa: S606 (the user's own scp, as the user)
    raise AssertionError("a process that became another does not go on")


def _oarsh() -> str | None:
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "oarsh")
    return beside if os.access(beside, os.X_OK) else shutil.which("oarsh")
