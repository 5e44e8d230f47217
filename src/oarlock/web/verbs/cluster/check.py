"""The verb of `oarlock check --live`: whether nodes run what the database says."""

from msgspec import Struct

from oarlock.job.check.finding import INVARIANTS
from oarlock.web.context import RequestContext
from oarlock.web.decode import EmptyRequest
from oarlock.web.policy import RequiredRole
from oarlock.web.registry import verb


class LiveFinding(Struct, frozen=True):
    """Something in which nodes and database do not agree: an invariant by its number and rule, and how bad it is."""

    invariant: int
    rule: str
    severity: str
    job: int | None
    sentence: str


class LiveCheckResponse(Struct, frozen=True):
    """What was found, on how many nodes that answered."""

    nodes: int
    findings: list[LiveFinding]


@verb(
    "check.live", "GET /check/live",
    role=RequiredRole.ADMINS, request=EmptyRequest, response=LiveCheckResponse,
    summary="Compare what all Alive nodes run with what the database says.",
)  # fmt: skip
async def check_live(context: RequestContext, _request: EmptyRequest) -> LiveCheckResponse:
    """Ask all Alive nodes, and compare."""
    nodes, findings = await context.core.check_nodes_agree()
    return LiveCheckResponse(
        sum(not node.problem for node in nodes),
        [
            LiveFinding(
                finding.invariant,
                INVARIANTS[finding.invariant],
                finding.severity.name.lower(),
                finding.job or None,
                finding.sentence,
            )
            for finding in findings
        ],
    )
