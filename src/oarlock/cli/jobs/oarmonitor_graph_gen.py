"""oarmonitor_graph_gen: draw what `oarmonitor` recorded of a job."""

from __future__ import annotations

import errno
import os
import stat

from oarlock.cli import output
from oarlock.cli.options import CommandOptions, job_number
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oarmonitor_graph_gen",
    "Draw what `oarmonitor` recorded of a job of yours.",
    usage=("-j JOB",),
    about=(
        "Writes a PNG for each thing that was recorded, with a curve a node, and an animation (job.gif) to the folder "
        "OAR.JOB.monitoring in the current directory. Pictures are drawn by Pillow."
    ),
)
OPTIONS.text("-j --job=JOB", "the job")
OPTIONS.end()
OPTIONS.example("oarmonitor_graph_gen -j 4242", "draw job 4242 to OAR.4242.monitoring")


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Fetch what was recorded, draw it all, then write it."""
    if parsed.words or parsed.text("job") is None:
        raise RequestRefused("oarmonitor_graph_gen takes a job.", kind="BadOption", hint="oarmonitor_graph_gen -j JOB")
    number = job_number(parsed.text("job") or "")
    _check_pillow()
    recorded = client.recorded(number)
    directory = f"OAR.{number}.monitoring"
    files = _draw(recorded)
    _write(directory, files)
    out.line(f"{len(files)} pictures are in {directory}.")


def _check_pillow() -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise RequestRefused(
            "Pictures are drawn by Pillow, which is not installed here.",
            kind="NoPillow",
            hint="pip install 'oarlock[graphs]'",
        ) from None


def _draw(recorded: Any) -> dict[str, bytes]:
    from oarlock.measure import graphs, pictures

    return dict(pictures.draw(graphs.read_graphs(recorded)))


def _write(directory: str, files: dict[str, bytes]) -> None:
    """Write all files; where that fails, none of the new ones is left half written."""
    try:
        os.makedirs(directory, exist_ok=True)
        if not stat.S_ISDIR(os.lstat(directory).st_mode):
            raise FileExistsError(errno.EEXIST, "It is a link")
        for name, content in files.items():
            _write_file(os.path.join(directory, name), content)
    except OSError as error:
        raise RequestRefused(
            f"{directory} cannot be written: {error.strerror}.",
            kind="CannotWrite",
            hint="Change to a directory where you can write, or move what has this name.",
        ) from None


def _write_file(path: str, content: bytes) -> None:
    new = f"{path}.new"
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644), "wb") as file:
            file.write(content)
        os.replace(new, path)
    except OSError:
        if os.path.exists(new):
            os.unlink(new)
        raise
