"""oarlock samples: what was measured of a job, as a table, as curves, or as a file to take home."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from oarlock.cli.layout import readable
from oarlock.cli.output import show_text
from oarlock.client import Client, RequestRefused

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Show what was measured of a job of yours, while it runs or when it is over: the least, the mean and the most of "
    "each metric on each of its nodes. With -o all samples are written to a file."
)
_SHORT = ".csv"
_HDF5_BEGINS = b"\x89HDF\r\n"


class _Samples(Client):
    """The client, with the verbs of samples."""

    def series(self, job: int, **query: object) -> dict[str, Any]:
        """Return curves of a job."""
        response: dict[str, Any] = self._get(f"/jobs/{job}/series", **query)
        return response

    def samples(self, job: int, **query: object) -> bytes:
        """Return the file of a job."""
        return self._download(f"/jobs/{job}/samples", **query)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("samples", help="show or download what was measured of a job", description=_ABOUT)
    parser.add_argument("job", metavar="JOB", type=int, help="the number of the job")
    parser.add_argument("--cluster", metavar="NAME",
                        help="a job of that cluster, whose agents send here, by the number it has there")  # fmt: skip
    parser.add_argument("-m", "--metric", metavar="METRIC", action="append", default=[],
                        help="this metric; may be given several times")  # fmt: skip
    parser.add_argument("--since", metavar="DATE", help="from then on: YYYY-MM-DD [hh:mm:ss], local time")
    parser.add_argument("--until", metavar="DATE", help="up to then")
    parser.add_argument("-o", "--output", metavar="FILE",
                        help="write all samples to a new file: HDF5, or CSV if its name ends in .csv")  # fmt: skip
    parser.add_argument("--csv", action="store_true", help="print all samples as CSV")
    parser.add_argument("-J", "--json", action="store_true", help="print curves of at most 500 points as JSON")
    parser.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print a table or curves, or write a file."""
    client = _Samples(arguments.server)
    query: dict[str, object] = {
        "cluster": arguments.cluster,
        "metrics": ",".join(arguments.metric) or None,
        "since": None if arguments.since is None else readable.instant(arguments.since, what="--since"),
        "until": None if arguments.until is None else readable.instant(arguments.until, what="--until"),
    }
    if arguments.output is not None:
        _save(client, arguments, query)
    elif arguments.csv:
        sys.stdout.buffer.write(client.samples(arguments.job, format="csv", **query))
    else:
        view = client.series(arguments.job, **query)
        if arguments.json:
            print(json.dumps(view))
        else:
            of_cluster = "" if arguments.cluster is None else f" of {arguments.cluster}"
            for line in lines({**view, "job_id": f"{arguments.job}{of_cluster}"}):
                show_text(line)


def _save(client: _Samples, arguments: argparse.Namespace, query: dict[str, object]) -> None:
    form = "csv" if arguments.csv or arguments.output.endswith(_SHORT) else "h5"
    try:
        # Made before anything is sent: what cannot be written must not be asked for.
        fd = os.open(arguments.output, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except OSError as problem:
        raise RequestRefused(
            f"{arguments.output} cannot be made: {problem.strerror}.", kind="BadFile", hint="Name another file."
        ) from None
    try:
        with os.fdopen(fd, "wb") as file:
            size = file.write(_checked(client.samples(arguments.job, format=form, **query), form))
    except BaseException:
        os.unlink(arguments.output)
        raise
    show_text(f"{arguments.output}: {size} bytes.")


def _checked(content: bytes, form: str) -> bytes:
    """Return a file; refuse CSV for HDF5, which is what a server without h5py sends."""
    if form == "h5" and not content.startswith(_HDF5_BEGINS):
        raise RequestRefused(
            "The server sends CSV alone: h5py, which makes HDF5 files, is not installed there.",
            kind="NoHdf5",
            hint="Name a file that ends in .csv.",
        )
    return content


def lines(view: dict[str, Any]) -> list[str]:
    """Lay out the least, the mean and the most of each curve, and name gaps."""
    state = "so far" if view["live"] else "as it was kept"
    if not view["series"]:
        return [f"Job {view['job_id']}, {state}: nothing was measured of what is asked for."]
    begin, end = (readable.date(int(view[name])) for name in ("since", "until"))
    rows = [("METRIC", "NODE", "LEAST", "MEAN", "MOST", "UNIT"), *map(_row, view["series"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    text = [f"Job {view['job_id']}, {state}: {begin} to {end}"]
    for row in rows:
        cells = [cell.rjust(width) if 2 <= column <= 4 else cell.ljust(width)
                 for column, (cell, width) in enumerate(zip(row, widths, strict=True))]  # fmt: skip
        text.append(f"    {'  '.join(cells)}".rstrip())
    if view["gaps"]:
        seconds = sum(until - since for _, since, until, _ in view["gaps"])
        text.append(f"Gaps: {len(view['gaps'])}, {readable.duration(round(seconds))} in all")
    return text


def _row(curve: dict[str, Any]) -> tuple[str, ...]:
    points = [point for point in curve["points"] if point[2] is not None]
    if not points:
        return (curve["series"], curve["node"], "-", "-", "-", curve["unit"])
    least, most = min(point[1] for point in points), max(point[3] for point in points)
    mean = sum(point[2] for point in points) / len(points)
    return (curve["series"], curve["node"], *(f"{value:.6g}" for value in (least, mean, most)), curve["unit"])
