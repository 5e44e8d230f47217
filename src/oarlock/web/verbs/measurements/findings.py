"""Verbs about findings: what the measurements of jobs mean, by the rules of the site."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.insight.facts import FACTS, FactValue
from oarlock.insight.findings import Finding, find
from oarlock.insight.gather import JudgedFacts, gather
from oarlock.insight.rules import FindingRules, rules_in_force
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import agent_jobs, jobs
from oarlock.store.queries.usage import judged_jobs
from oarlock.web import decode
from oarlock.web.context import RequestContext
from oarlock.web.decode import EmptyRequest, Id, Instant, VerbRequest, Word
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb
from oarlock.web.verbs.measurements.agents import find_measured

_WEEK = 7 * 86_400
_MOST_JOBS = 2000

Language = Annotated[str, Meta(max_length=8)]


class JobFindingsRequest(VerbRequest):
    """A job, and the language of the texts (`en`, `fr`).

    `cluster`: it is a job of that cluster, whose agents send here, by the number it has there.
    """

    id: Id
    cluster: Word | None = None
    language: Language = "en"


class FindingsRequest(VerbRequest):
    """Jobs that ended between two instants, by default in the last seven days, or run; of a user, of a project."""

    since: Instant | None = None
    until: Instant | None = None
    user: Word | None = None
    project: Word | None = None
    language: Language = "en"


class JobFindingsView(Struct, frozen=True):
    """What was found about a job. Of one that was never measured `facts` is empty.

    `label` is what people call a job of another resource manager (`17@alpha`).
    """

    job_id: int
    user: str
    project: str
    name: str | None
    findings: list[Finding]
    facts: dict[str, FactValue]
    label: str = ""


class FindingsResponse(Struct, frozen=True):
    """Jobs about which something was found, newest first, and how many were looked at.

    `own`: only jobs of the caller, and of projects it leads, were. `more`: there are older ones that were left out.
    """

    since: int
    until: int
    judged: int
    jobs: list[JobFindingsView]
    own: bool
    more: bool


class FactView(Struct, frozen=True):
    """A fact that conditions may ask about."""

    name: str
    kind: str
    says: str


class RuleView(Struct, frozen=True):
    """A rule as it is in force."""

    id: str
    plot: str
    least_seconds: int
    text: str
    advice: str


class RulesView(Struct, frozen=True):
    """The rules in force and the facts that they may ask about."""

    file: str
    rules: list[RuleView]
    facts: list[FactView]


@verb(
    "jobs.findings", "GET /jobs/{id}/findings",
    role=RequiredRole.ADVISERS, request=JobFindingsRequest, response=JobFindingsView,
    summary="Show what was found about a job, with advice, and the facts that it follows from.",
)  # fmt: skip
async def job_findings(context: RequestContext, request: JobFindingsRequest) -> JobFindingsView:
    """Judge one job, live or over."""
    config = context.core.config

    def read(tx: Tx) -> JobFindingsView:
        number = find_measured(context, tx, request.id, request.cluster, "jobs.findings").number
        judged = gather(
            tx, [number], now=context.now, gpu_property=config.job_gpu_property, cluster=config.cluster_name
        )
        if not judged:
            return _nothing_found(tx, number)
        return _view(rules_in_force(config.findings_file), judged[0], request.language, facts=True)

    return await context.read(read)


def _nothing_found(tx: Tx, number: int) -> JobFindingsView:
    """Return the view of a job of which nothing was measured."""
    other = agent_jobs.by_number(tx, [number]).get(number)
    if other is not None:
        label = f"{other.job}@{other.cluster}"
        return JobFindingsView(number, other.user, other.account, other.name or None, [], {}, label)
    job = jobs.get(tx, number)
    return JobFindingsView(job.id, job.user, job.project, job.name, [], {})


@verb(
    "findings.list", "GET /findings",
    role=RequiredRole.USERS, request=FindingsRequest, response=FindingsResponse,
    summary="Show what was found about jobs of some days; those of others are shown to staff and their leaders.",
)  # fmt: skip
async def list_findings(context: RequestContext, request: FindingsRequest) -> FindingsResponse:
    """Judge all jobs with a summary."""
    since, until = decode.interval(request.since, request.until, now=context.now + 1, length=_WEEK)
    sight = context.advised
    config = context.core.config

    def read(tx: Tx) -> FindingsResponse:
        ids = judged_jobs.ids_between(
            tx, since, until, user=request.user, project=request.project, sight=sight, most=_MOST_JOBS + 1
        )
        judged = gather(
            tx, ids[:_MOST_JOBS], now=context.now, gpu_property=config.job_gpu_property, cluster=config.cluster_name
        )
        rules = rules_in_force(config.findings_file)
        views = [_view(rules, job, request.language) for job in reversed(judged)]
        return FindingsResponse(
            since,
            until,
            len(judged),
            [view for view in views if view.findings],
            context.only_own(request.project),
            len(ids) > _MOST_JOBS,
        )

    return await context.read(read)


def _view(rules: FindingRules, judged: JudgedFacts, language: str, *, facts: bool = False) -> JobFindingsView:
    job = judged.job
    findings = find(rules, judged.facts, script=judged.script, language=language, elsewhere=bool(job.label))
    return JobFindingsView(
        job.id, job.user, job.project, job.name, findings, dict(judged.facts) if facts else {}, job.label
    )


@verb(
    "findings.rules", "GET /findings/rules",
    role=RequiredRole.USERS, request=EmptyRequest, response=RulesView,
    summary="Show the rules of findings that are in force, and the facts that they may ask about.",
)  # fmt: skip
async def show_rules(context: RequestContext, _: EmptyRequest) -> RulesView:
    """Return the rules with their English texts."""
    config = context.core.config
    rules = rules_in_force(config.findings_file)
    return RulesView(
        str(config.findings_file or ""),
        [
            RuleView(rule.id, rule.plot, rule.least_seconds, rule.texts["en"].text, rule.texts["en"].advice)
            for rule in rules.findings
        ],
        [FactView(name, fact.kind.value, fact.says) for name, fact in FACTS.items()],
    )
