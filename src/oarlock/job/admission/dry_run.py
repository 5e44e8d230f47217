"""Try admission rules on the jobs of the last days: what they would have refused, and what they would have changed."""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from oarlock.config import Config
from oarlock.job.admission import stored_rules
from oarlock.job.admission.rules import RuleSource, read_lists
from oarlock.lang import request as requests
from oarlock.lang import rules
from oarlock.lang.rules import RuleContext, RuleRefusal
from oarlock.lang.where import Types
from oarlock.model.job import Job
from oarlock.model.submission import ResourceRequest, Submission
from oarlock.model.submission_errors import BadRule
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.job import jobs, listing, shapes
from oarlock.store.queries.job.listing import JobFilter

MOST_JOBS = 5000
_MOST_SHOWN = 50


class TriedJob(Struct, frozen=True):
    """A job that the rules would not have left as it was: why it would be refused, or what would be another."""

    job: int
    user: str
    says: str


class DryRunResult(Struct, frozen=True):
    """How many jobs were tried, refused and changed, with some of them. `more`: there were more jobs."""

    tried: int
    refused: int
    changed: int
    refusals: list[TriedJob]
    changes: list[TriedJob]
    more: bool


def submitted_since(tx: Tx, since: int, until: int) -> list[tuple[Job, ResourceRequest]]:
    """Return the jobs that were submitted in [since, until), newest first, with what they asked for."""
    rows = listing.rows(tx, JobFilter(since=since, until=until, states=None), most=4 * MOST_JOBS)
    ids = sorted((row.id for row in rows if row.submitted >= since), reverse=True)[: MOST_JOBS + 1]
    wanted = shapes.requests_of(tx, ids, properties.types(tx))
    return [(job, wanted[job.id]) for job in reversed(jobs.get_many(tx, sorted(ids))) if job.id in wanted]


def try_rules(
    text: str,
    submitted: Sequence[tuple[Job, ResourceRequest]],
    types: Types,
    *,
    config: Config,
    groups: Mapping[str, tuple[str, ...]],
) -> DryRunResult:
    """Apply a text of rules alone to jobs as they were stored. `BadRule` if it cannot be read, or asks for a file.

    What only the moment of a submission could tell (how many jobs waited then) is taken as nothing.
    """
    stored_rules.check_rule(text)
    lists, [source] = read_lists([RuleSource("the rule", 0, rules.read(text, file="the rule").rules)])
    if source.broken:
        raise BadRule(source.broken, hint=source.hint)
    context = RuleContext(properties=types, default_walltime=config.default_job_walltime, lists=lists)
    refusals, changes = [], []
    for job, request in submitted[:MOST_JOBS]:
        before = _submission(job, request, groups.get(job.user, ()))
        done = rules.apply(source.rules, before, context)
        if isinstance(done, RuleRefusal):
            refusals.append(TriedJob(job.id, job.user, done.sentence))
        elif differences := _differences(before, done.submission):
            changes.append(TriedJob(job.id, job.user, "; ".join(differences)))
    return DryRunResult(
        min(len(submitted), MOST_JOBS), len(refusals), len(changes), refusals[:_MOST_SHOWN], changes[:_MOST_SHOWN],
        len(submitted) > MOST_JOBS,
    )  # fmt: skip


def _submission(job: Job, request: ResourceRequest, groups: tuple[str, ...]) -> Submission:
    """Return what somebody would have to submit for a job as it is stored."""
    return Submission(
        user=job.user, request=request, queue=job.queue, kind=job.kind, command=job.command, name=job.name,
        project=job.project, types=job.types, checkpoint=job.checkpoint, checkpoint_signal=job.checkpoint_signal,
        notify=job.notify or None, directory=job.directory, stdout=job.stdout or None, stderr=job.stderr or None,
        groups=groups, uid=job.uid,
    )  # fmt: skip


_COMPARED = (
    "queue", "project", "name", "types", "notify", "command", "directory", "stdout", "stderr", "hold", "checkpoint",
    "checkpoint_signal", "rule_where",
)  # fmt: skip


def _differences(before: Submission, after: Submission) -> list[str]:
    differences = [
        f"{name}: {_shown(getattr(before, name))} → {_shown(getattr(after, name))}"
        for name in _COMPARED
        if getattr(before, name) != getattr(after, name)
    ]
    if before.request != after.request:
        differences.append(f"request: {_written(before.request)} → {_written(after.request)}")
    return differences


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "–"
    return "–" if value is None else str(value)


def _written(request: ResourceRequest) -> str:
    return " or ".join(map(requests.show_alternative, request.alternatives))


def users_of(submitted: Iterable[tuple[Job, ResourceRequest]]) -> set[str]:
    """Return whose jobs these are."""
    return {job.user for job, _ in submitted}
