"""Admit: the site's rules accept, change or refuse a submission."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from oarlock.config import Config
from oarlock.job.admission import parse, payload
from oarlock.job.admission.feasibility import ClusterResources
from oarlock.job.admission.rules import RuleSet, RuleSource
from oarlock.lang import request as requests
from oarlock.lang import rules
from oarlock.lang import where as conditions
from oarlock.lang.rules import PREFIX, RuleAcceptance, RuleContext, RuleRefusal
from oarlock.lang.where import Types
from oarlock.model.errors import OarlockError
from oarlock.model.event import Event, EventType
from oarlock.model.job import FINAL, Reservation
from oarlock.model.job_type import container_type, parse_types
from oarlock.model.submission import Submission
from oarlock.model.submission_errors import CountsChanged, RefusedByRule, RuleFailed
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.job import jobs
from oarlock.store.queries.site import administration

__all__ = [
    "CountedSubmission",
    "RuleAcceptance",
    "RuleResult",
    "RunPythonRule",
    "admit",
    "context",
    "counted",
    "note_failure",
    "readmit",
]

_TELL = "Tell your administrator."
_AFTER = "constraints_after_validation"


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What a Python rule answers: the job as it should be, or why it is refused; and what it says to the user."""

    job: Mapping[str, Any] | None = None
    reject: str | None = None
    messages: tuple[str, ...] = ()


RunPythonRule = Callable[[Path, Mapping[str, Any]], Awaitable[RuleResult]]
"""Runs a Python rule in a process of its own (`server.transports.rules.run`); what goes wrong is an `OarlockError`."""


def context(
    tx: Tx, submission: Submission, rule_set: RuleSet, cluster: ClusterResources, config: Config
) -> RuleContext:
    """Read what the rules need to know; only what some rule asks about is counted."""
    container, reserved = _container(tx, submission)
    counts, user = _counts(rule_set, submission), submission.user
    return RuleContext(
        properties=cluster.types,
        default_walltime=config.default_job_walltime,
        waiting_jobs=administration.waiting_jobs(tx, user) if _JOBS & counts else 0,
        waiting_reservations=administration.waiting_reservations(tx, user)
        if "waiting_reservations" in counts
        else None,
        container=container,
        container_reserved=reserved,
        lists=rule_set.lists,
    )


_JOBS = frozenset({"waiting_jobs", "waiting_jobs_after"})


def _counts(rule_set: RuleSet, submission: Submission) -> frozenset[str]:
    """Return the counts that some rule looks at for this submission."""
    return (rule_set.fields & rules.COUNTS) if submission.reservation is not None else rule_set.fields & _JOBS


@dataclass(frozen=True, slots=True)
class CountedSubmission:
    """A submission as it was before the rules, which looked at counts that others may change before it is stored."""

    rule_set: RuleSet
    submission: Submission
    rule_context: RuleContext


def counted(rule_set: RuleSet, submission: Submission, rule_context: RuleContext) -> CountedSubmission | None:
    """Return what has to be looked at again when the submission is stored; None if no rule counts."""
    return CountedSubmission(rule_set, submission, rule_context) if _counts(rule_set, submission) else None


def readmit(
    tx: Tx, counted_submission: CountedSubmission, admitted: RuleAcceptance, *, more_jobs: int, more_reservations: int
) -> RuleAcceptance:
    """Apply the rules again, in the transaction that stores, if the counts differ from those they were given.

    `more_…`: what the same transaction is about to store for the same user. Rules that are data are applied here; with
    a Python rule, which takes longer than others may be kept waiting, more jobs than before raise `CountsChanged`.
    """
    before, user, counts = (
        counted_submission.rule_context,
        counted_submission.submission.user,
        _counts(counted_submission.rule_set, counted_submission.submission),
    )
    waiting = administration.waiting_jobs(tx, user) + more_jobs if _JOBS & counts else 0
    reserved = None
    if "waiting_reservations" in counts:
        reserved = administration.waiting_reservations(tx, user) + more_reservations
    if (waiting, reserved) == (before.waiting_jobs, before.waiting_reservations):
        return admitted
    if any(source.python for source in counted_submission.rule_set.sources):
        if waiting <= before.waiting_jobs and (reserved or 0) <= (before.waiting_reservations or 0):
            return admitted  # jobs began meanwhile, and none was added
        raise CountsChanged(
            f"Other jobs of {user} were submitted while the rules looked at this one.", hint="Submit it again."
        )
    return _apply_again(counted_submission, replace(before, waiting_jobs=waiting, waiting_reservations=reserved))


def _apply_again(counted_submission: CountedSubmission, rule_context: RuleContext) -> RuleAcceptance:
    done = RuleAcceptance(_checked(counted_submission.submission, rule_context.properties))
    for source in counted_submission.rule_set.sources:
        more = _apply(source, done.submission, rule_context)
        done = RuleAcceptance(more.submission, done.messages + more.messages)
    return done


async def admit(
    rule_set: RuleSet,
    submission: Submission,
    rule_context: RuleContext,
    *,
    config: Config,
    now: int,
    run: RunPythonRule | None = None,
) -> RuleAcceptance:
    """Apply all rules in their order. `RefusedByRule` and `RuleFailed` name the rule; the latter is to be noted.

    No transaction is open meanwhile: a slow rule does not block other requests.
    """
    submission = sent = _checked(submission, rule_context.properties)
    messages: tuple[str, ...] = ()
    for source in rule_set.sources:
        if source.broken:
            raise RuleFailed(f"An admission rule does not work: {source.broken}", hint=source.hint or _TELL)
        if source.python is None:
            admitted = _apply(source, submission, rule_context)
        elif run is None:
            raise _failed(source.name, "Python rules are not run here.")
        else:
            admitted = await _run_python_rule(source.python, submission, rule_context, config=config, now=now, run=run)
        submission, messages = admitted.submission, messages + admitted.messages
    if _output_names(submission) != _output_names(sent):
        parse.check_outputs(submission)
    return RuleAcceptance(submission, messages)


def _output_names(submission: Submission) -> tuple[str | None, ...]:
    return submission.name, submission.stdout, submission.stderr


def note_failure(tx: Tx, failure: RuleFailed, *, user: str, now: int) -> None:
    """Write down that a rule does not work, for the administrator."""
    events.add(tx, [Event(EventType.ADMISSION_RULE_ERROR, now, f"{failure} The job of {user} was refused.")])


def _checked(submission: Submission, types: Types) -> Submission:
    return replace(submission, request=requests.check(submission.request, types))


def _apply(source: RuleSource, submission: Submission, rule_context: RuleContext) -> RuleAcceptance:
    done = rules.apply(source.rules, submission, rule_context)
    if isinstance(done, RuleAcceptance):
        return done
    raise _refusal(done)


def _refusal(refused: RuleRefusal) -> OarlockError:
    name = f"{refused.rule.file}, rule `{refused.rule.name}`"
    if refused.broken:
        return _failed(name, refused.sentence)
    allowed = ", ".join(job_type.replace("%", "…") for job_type in refused.rule.allow_types or ())
    return _rejected(refused.sentence, name, f" Known are {allowed}." if allowed else "")


def _rejected(sentence: str, name: str, more: str = "") -> RefusedByRule:
    return RefusedByRule(PREFIX + sentence, hint=f"Refused by {name}.{more}")


def _failed(name: str, sentence: str, hint: str = "") -> RuleFailed:
    return RuleFailed(f"The admission rule {name} does not work: {sentence}", hint=hint or _TELL)


async def _run_python_rule(
    path: Path, submission: Submission, rule_context: RuleContext, *, config: Config, now: int, run: RunPythonRule
) -> RuleAcceptance:
    """Ask a Python rule; what it answers is read like anything that a user sends."""
    try:
        result = await run(path, _rule_input(submission, rule_context))
        if result.job is None:
            raise _rejected(result.reject or "The job is not allowed.", path.name)
        submission_after = _parse_result(result.job, submission, rule_context, config=config, now=now)
    except RefusedByRule:
        raise
    except OarlockError as problem:
        raise _failed(path.name, str(problem), problem.hint) from problem
    return RuleAcceptance(submission_after, tuple(PREFIX + message for message in result.messages))


def _rule_input(submission: Submission, rule_context: RuleContext) -> dict[str, Any]:
    """Return what a Python rule receives: the job as it was sent, and its context."""
    return {
        "job": {**parse.written(submission), _AFTER: list(submission.rule_where)},
        "context": {
            "user": submission.user,
            "groups": list(submission.groups),
            "array_size": len(submission.array),
            "default_walltime": rule_context.default_walltime,
            "waiting_jobs": rule_context.waiting_jobs,
            "waiting_reservations": rule_context.waiting_reservations,
            "properties": sorted(rule_context.properties),
        },
    }


def _parse_result(
    job: Mapping[str, Any], before: Submission, rule_context: RuleContext, *, config: Config, now: int
) -> Submission:
    fields = dict(job)
    after = fields.pop(_AFTER, [])
    parsed = parse.read(payload.from_fields(fields), user=before.user, groups=before.groups, config=config, now=now)
    if not isinstance(after, list) or not all(isinstance(text, str) for text in after):
        raise OarlockError(f"`{_AFTER}` is not a list of conditions.")
    merged = replace(
        parsed,
        environment=before.environment,
        script=before.script,
        notes=before.notes,
        array=before.array,
        file_id=before.file_id,
        resubmit_of=before.resubmit_of,
        uid=before.uid,
        rule_where=tuple(
            conditions.show(conditions.check(conditions.parse(text), rule_context.properties)) for text in after
        ),
    )
    return _checked(merged, rule_context.properties)


def _container(tx: Tx, submission: Submission) -> tuple[bool | None, bool | None]:
    """Look at the container that an inner job names: can it take jobs, and is it a reservation."""
    named = parse_types(submission.types).inner
    if named is None:
        return None, None
    candidates = jobs.existing(tx, [int(named)]) if named.isdecimal() else jobs.of_type(tx, container_type(named))
    live = [job for job in candidates if parse_types(job.types).is_container and job.state not in FINAL]
    return bool(live), any(job.reservation is not Reservation.NONE for job in live)
