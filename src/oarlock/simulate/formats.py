"""Open a trace: which form it has is seen from its name and its first characters."""

import gzip
from pathlib import Path

from oarlock.simulate import batsim, swf
from oarlock.simulate.trace import Trace, TraceJob, TraceRefused, flat
from oarlock.store.engine.opening import parse_address
from oarlock.store.queries import history

_SQLITE = b"SQLite format 3\0"
_GZIP = b"\x1f\x8b"
FOREVER = 1 << 62
_FORMS = "A trace is SWF, Batsim's JSON, the file of an SQLite database, or postgresql://…."
_INNER = "inner jobs, which ran on the resources of their container"
_DEAD = "resources that are Dead today count as ready, since jobs of this stretch had them"


def read(where: str, *, since: int = 0, until: int = FOREVER) -> Trace:
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
    trace = batsim.read(text, name) if text.lstrip().startswith("{") else swf.read(text.splitlines(), name)
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
