"""The rules in the table `admission_rules`: shown, changed, and tried by their examples before they are stored."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from oarlock.config import Config
from oarlock.job.admission.payload import from_fields
from oarlock.job.admission.rules import PERL_HINT, RuleSource
from oarlock.job.admission.submit import read
from oarlock.lang import request as requests
from oarlock.lang import rules
from oarlock.lang import where as conditions
from oarlock.lang.limits import closest, short
from oarlock.lang.rules import PREFIX, AdmissionRule, RuleAcceptance, RuleContext, RuleExample, RuleRefusal, perl
from oarlock.model.errors import OarlockError
from oarlock.model.event import Event, EventType
from oarlock.model.submission import Submission
from oarlock.model.submission_errors import BadRule, ExamplesFailed, UnknownRule
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
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
