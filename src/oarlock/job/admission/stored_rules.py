"""The rules in the table `admission_rules`: shown, changed, and tried by their examples before they are stored.

They can also be tried on the jobs of the last days: what they would have refused, and what they would have changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from oarlock.config import Config
from oarlock.job.admission.payload import from_fields
from oarlock.job.admission.rules import PERL_HINT, RuleSource, read_lists
from oarlock.job.admission.submit import read
from oarlock.lang import request as requests
from oarlock.lang import rules
from oarlock.lang import where as conditions
from oarlock.lang.limits import closest, short
from oarlock.lang.rules import PREFIX, AdmissionRule, RuleAcceptance, RuleContext, RuleExample, RuleRefusal, perl
from oarlock.lang.where import Types
from oarlock.model.errors import OarlockError
from oarlock.model.event import Event, EventType
from oarlock.model.job import Job
from oarlock.model.submission import ResourceRequest, Submission
from oarlock.model.submission_errors import BadRule, ExamplesFailed, UnknownRule
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, properties
from oarlock.store.queries.job import jobs, listing, shapes
from oarlock.store.queries.job.listing import JobFilter
from oarlock.store.queries.site import administration
from oarlock.store.queries.site.administration import RuleRow

NOW = 1_900_000_000
_PROPERTIES: Mapping[str, type] = {
    **dict.fromkeys(("resource_id", "cpu", "core", "mem", "state_num", "last_job_date"), int),
    **dict.fromkeys(("type", "state", "network_address", "host", "switch", "besteffort", "deploy", "drain"), str),
    "desktop_computing": str,
}
"""What resources have in an example that does not say it."""

_GIVEN = frozenset(
    {"user", "groups", "properties", "lists", "container", "container_reserved", "default_walltime", "waiting_jobs"}
    | {"waiting_reservations"}
)
_KINDS = {"int": int, "str": str}


@dataclass(frozen=True, slots=True)
class ExampleResult:
    """How an example came out; `differs` is empty if as it says."""

    example: RuleExample
    differs: str = ""


def run_examples(source: RuleSource) -> Iterator[ExampleResult]:
    """Try every example of a source on the rules of that source."""
    for example in source.examples:
        yield ExampleResult(example, _differs(example, source.rules))


def plain_job() -> tuple[Submission, RuleContext]:
    """Return a job with nothing special about it, and what rules know about a site without any."""
    example = RuleExample(name="a plain job", file="", job={}, given={}, gives={})
    rule_context = _context(example)
    return _submission(example, rule_context), rule_context


def _differs(example: RuleExample, applied: Sequence[AdmissionRule]) -> str:
    try:
        rule_context = _context(example)
        submission = _submission(example, rule_context)
    except OarlockError as problem:
        return f"the job cannot be made: {problem}"
    done = rules.apply(applied, submission, rule_context)
    if isinstance(done, RuleRefusal):
        if example.refused is not None and example.refused in done.sentence and not done.broken:
            return ""
        return f"refused by rule `{done.rule.name}`: {done.sentence}"
    if example.refused is not None:
        return "it is let in"
    return _compared(example.gives, _outcome(done))


def _submission(example: RuleExample, rule_context: RuleContext) -> Submission:
    job = dict(example.job)
    if not job.get("interactive"):
        job.setdefault("command", "true")
    user, groups = str(example.given.get("user", "ada")), example.given.get("groups", ["users"])
    made = read(from_fields(job), user=user, groups=groups, config=Config(), now=NOW)
    return replace(made, request=requests.check(made.request, rule_context.properties))


def _context(example: RuleExample) -> RuleContext:
    for key in example.given:
        if key not in _GIVEN:
            raise BadRule(f"`{short(key)}` is nothing that is given.", hint=closest(key, _GIVEN))
    given = {key: value for key, value in example.given.items() if key not in {"user", "groups"}}
    if "properties" in given:
        given["properties"] = {name: _KINDS.get(kind, str) for name, kind in given["properties"].items()}
        # What a request counts must exist.
        given["properties"] |= {"resource_id": int, "network_address": str}
    if "lists" in given:
        given["lists"] = {name: frozenset(names) for name, names in given["lists"].items()}
    return RuleContext(**{"properties": _PROPERTIES, **given})


def _outcome(done: RuleAcceptance) -> dict[str, Any]:
    """Return what an example can compare."""
    submission = done.submission
    request = submission.request
    return {
        "queue": submission.queue,
        "project": submission.project,
        "name": submission.name,
        "notify": submission.notify,
        "command": submission.command,
        "directory": submission.directory,
        "stdout": submission.stdout,
        "stderr": submission.stderr,
        "hold": submission.hold,
        "use_key": submission.use_key,
        "checkpoint": submission.checkpoint,
        "signal": submission.checkpoint_signal,
        "types": list(submission.types),
        "walltimes": [alternative.walltime for alternative in request.alternatives if alternative.walltime is not None],
        "resources": [requests.show_alternative(alternative) for alternative in request.alternatives],
        "properties": "" if request.where is None else conditions.show(request.where),
        "after_validation": list(submission.rule_where),
        "messages": [alternative.removeprefix(PREFIX) for alternative in done.messages],
    }


def _compared(expected: Mapping[str, Any], outcome: Mapping[str, Any]) -> str:
    for key, value in expected.items():
        if key not in outcome:
            return f"`{short(key)}` is nothing that comes out; {closest(key, outcome)}"
        if outcome[key] != value:
            return f"{key} is {outcome[key]!r}, not {value!r}"
    return ""


class StoredRuleView(Struct, frozen=True):
    """A row of the table. `language`: TOML, Perl of the manual (which is translated), or Perl (which is not used)."""

    id: int
    priority: int
    enabled: bool
    rule: str
    language: str
    names: tuple[str, ...] = ()


def listed(tx: Tx) -> list[StoredRuleView]:
    """Return all rows, in the order in which they would apply."""
    return [_view(row) for row in administration.all_rules(tx)]


def add(tx: Tx, text: str, *, priority: int, enabled: bool) -> int:
    """Store a text of rules; return its number. `BadRule`, `ExamplesFailed`: it would not work."""
    check_rule(text)
    return administration.add_rules(tx, text, priority=priority, enabled=enabled)


def change(
    tx: Tx, number: int, *, text: str | None = None, priority: int | None = None, enabled: bool | None = None
) -> None:
    """Change a row (`UnknownRule`); what is switched on must work."""
    row = _row(tx, number)
    changed = row._replace(
        text=row.text if text is None else text,
        priority=row.priority if priority is None else priority,
        enabled=row.enabled if enabled is None else enabled,
    )
    if text is not None or (changed.enabled and not row.enabled and perl.translated(row.text) is None):
        check_rule(changed.text)
    administration.set_rules(tx, changed)


def remove(tx: Tx, number: int) -> None:
    """Delete a row (`UnknownRule`)."""
    _row(tx, number)
    administration.remove_rules(tx, number)


def check_rule(text: str) -> None:
    """Raise `BadRule` if a text cannot be read, `ExamplesFailed` if an example beside a rule comes out otherwise."""
    if perl.is_perl(text):
        raise BadRule("This rule is written in Perl, which is not run here.", hint=PERL_HINT)
    parsed = rules.read(text, file="the rule")
    if not parsed.rules:
        raise BadRule("There is no [[rule]] in this text.", hint="--disabled switches a rule off.")
    source = RuleSource("the rule", 0, parsed.rules, parsed.examples)
    for result in run_examples(source):
        if result.differs:
            raise ExamplesFailed(
                f"The example `{result.example.name}` comes out otherwise: {result.differs}",
                hint="Change the rule, or what its example says.",
            )


def disable_perl(tx: Tx, *, now: int) -> list[int]:
    """Switch off the rows that are Perl and none of the manual's examples, each with an event; return their numbers."""
    rows = [row for row in administration.all_rules(tx) if row.enabled and _language(row.text) == "Perl"]
    for row in rows:
        administration.set_rules(tx, row._replace(enabled=False))
        says = f"row {row.id} of admission_rules is written in Perl and was switched off; {PERL_HINT}"
        events.add(tx, [Event(EventType.ADMISSION_RULE_ERROR, now, says)])
    return [row.id for row in rows]


def _row(tx: Tx, number: int) -> RuleRow:
    for row in administration.all_rules(tx):
        if row.id == number:
            return row
    raise UnknownRule(f"There is no rule {number} in the table.", hint="`oaradmissionrules -S` lists them.")


def _view(row: RuleRow) -> StoredRuleView:
    language, text = _language(row.text), perl.translated(row.text) or row.text
    try:
        names = tuple(rule.name for rule in rules.read(text, file="rule").rules)
    except BadRule:
        names = ()
    return StoredRuleView(row.id, row.priority, row.enabled, row.text, language, names)


def _language(text: str) -> str:
    if not perl.is_perl(text):
        return "TOML"
    return "Perl" if perl.translated(text) is None else "Perl of the manual"


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
    check_rule(text)
    lists, [source] = read_lists([RuleSource("the rule", 0, rules.read(text, file="the rule").rules)])
    if source.broken:
        raise BadRule(source.broken, hint=source.hint)
    context = RuleContext(properties=types, default_walltime=config.default_job_walltime, lists=lists)
    refusals, changes = [], []
    for job, request in submitted[:MOST_JOBS]:
        before = _submission_of(job, request, groups.get(job.user, ()))
        done = rules.apply(source.rules, before, context)
        if isinstance(done, RuleRefusal):
            refusals.append(TriedJob(job.id, job.user, done.sentence))
        elif differences := _differences(before, done.submission):
            changes.append(TriedJob(job.id, job.user, "; ".join(differences)))
    return DryRunResult(
        min(len(submitted), MOST_JOBS), len(refusals), len(changes), refusals[:_MOST_SHOWN], changes[:_MOST_SHOWN],
        len(submitted) > MOST_JOBS,
    )  # fmt: skip


def _submission_of(job: Job, request: ResourceRequest, groups: tuple[str, ...]) -> Submission:
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
