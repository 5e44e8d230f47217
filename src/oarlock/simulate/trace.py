"""A trace: jobs of the past, in one form for every file format, which is seen from a file's name and content.

SWF is the format of the Parallel Workloads Archive: a line a job, eighteen numbers; `;` begins a comment.
Alea's form adds a list of nodes, a queue and a request (`2:ppn=8:x86_64`), which then says what the job asks for.
Batsim's JSON workloads: jobs that ask for `res` resources, and profiles that say how long they run.
"""

import gzip
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from oarlock.model.errors import OarlockError
from oarlock.model.snapshot import ResourceTable, Shape
from oarlock.model.submission import Level, ResourceGroup
from oarlock.store.engine.opening import parse_address
from oarlock.store.queries.usage import history


class TraceRefused(OarlockError):
    """A trace that cannot be read or replayed."""


class TraceJob(Struct, frozen=True, gc=False):
    """A job of the past: what it asked for, and how long it ran. Instants and durations are seconds.

    `processors` is how many resources it held; `waited` is how long it really waited, where that is known.
    """

    number: int
    submitted: int
    run: int
    walltime: int
    shape: Shape
    processors: int
    user: str = "-"
    project: str = "-"
    waited: int | None = None


class Trace(Struct, frozen=True):
    """Jobs by the instant of their submission.

    `skipped`: lines or jobs that say nothing usable, by reason; `remarks`: what a reader of the results has to know.
    """

    name: str
    jobs: tuple[TraceJob, ...]
    processors: int | None = None  # of the machine, where the trace says so
    resources: ResourceTable | None = None  # of the cluster, where the trace brings it
    skipped: dict[str, int] = {}
    remarks: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def flat(count: int) -> Shape:
    """Ask for so many resources, whichever."""
    return Shape((ResourceGroup((Level("resource_id", count),)),))


@lru_cache(maxsize=4096)
def parts(nodes: int, cores: int) -> Shape:
    """Ask for so many nodes with so many cores each."""
    return Shape((ResourceGroup((Level("network_address", nodes), Level("core", cores))),))


def by_submission(jobs: list[TraceJob]) -> tuple[TraceJob, ...]:
    """Bring jobs into the order in which they came; those of one instant stay as they were written down."""
    return tuple(sorted(jobs, key=attrgetter("submitted")))


_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
FOREVER = 1 << 62
_FORMS = "A trace is SWF, Batsim's JSON, the file of an SQLite database, or postgresql://…."
_INNER = "inner jobs, which ran on the resources of their container"
_DEAD = "resources that are Dead today count as ready, since jobs of this stretch had them"


def read_trace(where: str, *, since: int = 0, until: int = FOREVER) -> Trace:
    """Read a trace: a file of SWF or Batsim, packed by gzip or not, or the history of a database.

    Of a history, the jobs submitted in [since, until). What cannot be read is refused (`TraceRefused`).
    """
    if "://" in where:
        return _history(where, "the database", since, until)
    path = Path(where)
    try:
        with path.open("rb") as file:
            begin = file.read(len(_SQLITE))
        if begin == _SQLITE:
            return _history(where, path.name, since, until)
        text = _text(path, packed=begin.startswith(_GZIP))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise TraceRefused(f"{where} cannot be read: {why}.", hint=_FORMS) from error
    name = path.name
    if since > 0 or until < FOREVER:
        raise TraceRefused(
            f"{name} is a file, of which all is replayed.", hint="--since and --until choose from a database."
        )
    trace = read_batsim(text, name) if text.lstrip().startswith("{") else read_swf(text.splitlines(), name)
    return _not_empty(trace)


def _text(path: Path, *, packed: bool) -> str:
    if not packed:
        return path.read_text(encoding="utf-8")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read()


def _history(where: str, name: str, since: int, until: int) -> Trace:
    if where.startswith(("mysql", "mariadb")):
        raise TraceRefused(
            "The history of an OAR on MySQL is not read directly.",
            hint="Copy it into PostgreSQL first (pgloader does), and give postgresql://….",
        )
    past = history.read_past_jobs(parse_address(where), since=since, until=until)
    jobs = tuple(
        TraceJob(
            number=job.id,
            submitted=job.submitted,
            run=min(job.stop - job.start, job.walltime),
            walltime=job.walltime,
            shape=job.shape or flat(max(job.held, 1)),
            processors=max(job.held, 1),
            user=job.user,
            project=job.project,
            waited=max(job.start - job.submitted, 0),
        )
        for job in past.jobs
    )
    skipped = {_INNER: past.inner} if past.inner else {}
    remarks = (f"{past.dead} {_DEAD}",) if past.dead else ()
    return _not_empty(Trace(name, jobs, None, past.resources, skipped, remarks))


def _not_empty(trace: Trace) -> Trace:
    if not trace.jobs:
        left_out = "".join(f"; {count} skipped: {reason}" for reason, count in trace.skipped.items())
        raise TraceRefused(
            f"{trace.name} has no job that ran{left_out}.",
            hint="Choose another --since and --until." if trace.resources else _FORMS,
        )
    return trace


_FIELDS = 18
_ALEA_FIELDS = 21
_PPN = re.compile(r"([0-9]+):ppn=([0-9]+)")
_MACHINE = re.compile(r";\s*Max(?:Procs|Nodes):\s*([0-9]+)")


class _Skipped(Exception):
    """A line that no job can be made of; the text is the reason."""


class _RequestedNodes(NamedTuple):
    nodes: int
    cores: int


def read_swf(lines: Iterable[str], name: str) -> Trace:
    """Read the lines of a file. What is no job (too short, never ran, no processors) is skipped and counted."""
    jobs: list[TraceJob] = []
    skipped: Counter[str] = Counter()
    machine: int | None = None
    for line in lines:
        if line.startswith(";"):
            if match := _MACHINE.match(line):
                machine = max(machine or 0, int(match[1]))
            continue
        fields = line.split()
        if not fields:
            continue
        try:
            jobs.append(_swf_job(fields))
        except _Skipped as reason:
            skipped[str(reason)] += 1
    return Trace(name, by_submission(jobs), machine, None, dict(skipped))


def _swf_job(fields: list[str]) -> TraceJob:
    """Make a job of a line. Asked-for values are preferred; used ones stand in where they are missing (-1)."""
    if len(fields) < _FIELDS:
        raise _Skipped("short line")
    try:
        number, submitted, waited, run, used, _, _, requested, walltime = _numbers(fields[:9])
    except ValueError:
        raise _Skipped("not a number") from None
    processors = requested if requested > 0 else used
    if processors <= 0:
        raise _Skipped("no processors")
    if run < 0:
        raise _Skipped("never ran")
    walltime = walltime if walltime > 0 else max(run, 1)
    grown = _requested_nodes(fields)
    return TraceJob(
        number=number,
        submitted=submitted,
        run=min(run, walltime),  # whoever ran over was ended; we count what was asked
        walltime=walltime,
        shape=parts(*grown) if grown else flat(processors),
        processors=grown.nodes * grown.cores if grown else processors,
        user=fields[11],
        project=fields[12],
        waited=waited if waited >= 0 else None,
    )


def _numbers(fields: list[str]) -> list[int]:
    """Read whole numbers; a few traces have fractions of seconds."""
    try:
        return [int(field) for field in fields]
    except ValueError:
        return [int(float(field)) for field in fields]


def _requested_nodes(fields: list[str]) -> _RequestedNodes | None:
    match = _PPN.match(fields[_ALEA_FIELDS - 1]) if len(fields) >= _ALEA_FIELDS else None
    return _RequestedNodes(int(match[1]), int(match[2])) if match else None


_LENGTHS = ("delay", "runtime")


def read_batsim(text: str, name: str) -> Trace:
    """Read a workload. Jobs whose profile has no length of its own (computations, messages) are skipped and counted."""
    try:
        workload = json.loads(text)
        jobs, profiles = workload["jobs"], workload["profiles"]
    except (ValueError, KeyError, TypeError) as error:
        raise TraceRefused(
            f"{name} is no workload of Batsim: {error}.", hint="It needs `jobs` and `profiles`."
        ) from error
    made: list[TraceJob] = []
    skipped: Counter[str] = Counter()
    for place, job in enumerate(jobs, 1):
        length = _profile_length(profiles.get(job.get("profile"), {}))
        if length is None:
            skipped["profile without a length"] += 1
        elif not job.get("res"):
            skipped["no resources"] += 1
        else:
            made.append(_batsim_job(job, place, length))
    processors = workload.get("nb_res")
    return Trace(name, by_submission(made), processors, None, dict(skipped))


def _profile_length(profile: dict[str, Any]) -> int | None:
    """Return the seconds of a profile, rounded up."""
    seconds = next((profile[key] for key in _LENGTHS if key in profile), None)
    return None if seconds is None else math.ceil(float(seconds))


def _batsim_job(job: dict[str, Any], place: int, length: int) -> TraceJob:
    walltime = math.ceil(float(job.get("walltime", length)))
    walltime = walltime if walltime > 0 else max(length, 1)
    number = str(job["id"]).rpartition("!")[2]
    return TraceJob(
        number=int(number) if number.isdigit() else place,
        submitted=round(float(job["subtime"])),
        run=min(length, walltime),
        walltime=walltime,
        shape=flat(int(job["res"])),
        processors=int(job["res"]),
        user=str(job.get("user", job.get("user_id", "-"))),
    )
