"""Examples beside the rules: each submits a job to the rules and compares the result with the expected one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from oarlock.config import Config
from oarlock.job.admission.payload import from_fields
from oarlock.job.admission.rules import RuleSource
from oarlock.job.admission.submit import read
from oarlock.lang import request as requests
from oarlock.lang import rules
from oarlock.lang import where as conditions
from oarlock.lang.limits import closest, short
from oarlock.lang.rules import PREFIX, AdmissionRule, RuleAcceptance, RuleContext, RuleExample, RuleRefusal
from oarlock.model.errors import OarlockError
from oarlock.model.submission import Submission
from oarlock.model.submission_errors import BadRule

NOW = 1_900_000_000
_PROPERTIES: Mapping[str, type] = {
    **dict.fromkeys(("resource_id", "cpu", "core", "cpuset", "mem", "state_num", "last_job_date"), int),
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
