"""Open a trace: which form it has is seen from its name and its first characters."""

import gzip
from pathlib import Path

from oarlock.simulate import batsim, swf
from oarlock.simulate.trace import Trace, TraceJob, TraceRefused, flat
from oarlock.store import history
from oarlock.store.opening import place

_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
FOREVER = 1 << 62


def read(where: str, *, since: int = 0, until: int = FOREVER) -> Trace:
    """Read a trace: a file of SWF or Batsim, packed by gzip or not, or the history of a database.

    Of a history, the jobs submitted in [since, until). What cannot be read is refused (`TraceRefused`).
    """
    if "://" in where:
        return _history(where, "the database", since, until)
    found = Path(where)
    try:
        with found.open("rb") as file:
            begin = file.read(len(_SQLITE))
        if begin == _SQLITE:
            return _history(where, found.name, since, until)
        text = _text(found, packed=begin.startswith(_GZIP))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TraceRefused(
            f"{where} cannot be read: {error}.", hint="A trace is SWF, Batsim's JSON or a database."
        ) from error
    name = found.name
    trace = batsim.read(text, name) if text.lstrip().startswith("{") else swf.read(text.splitlines(), name)
    return _not_empty(trace)


def _text(path: Path, *, packed: bool) -> str:
    if not packed:
        return path.read_text(encoding="utf-8")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read()


def _history(where: str, name: str, since: int, until: int) -> Trace:
    past = history.read(place(where), since=since, until=until)
    jobs = tuple(
        TraceJob(
            number=job.id,
            submitted=job.submitted,
            run=min(job.stop - job.start, job.walltime),
            walltime=job.walltime,
            shape=job.shape or flat(job.held),
            processors=job.held,
            user=job.user,
            project=job.project,
            waited=max(job.start - job.submitted, 0),
        )
        for job in past.jobs
    )
    return _not_empty(Trace(name, jobs, len(past.resources.ids), past.resources))


def _not_empty(trace: Trace) -> Trace:
    if not trace.jobs:
        left_out = "".join(f"; {count} skipped: {reason}" for reason, count in trace.skipped.items())
        raise TraceRefused(
            f"{trace.name} has no job that ran{left_out}.", hint="A trace is SWF, Batsim's JSON or a database."
        )
    return trace
