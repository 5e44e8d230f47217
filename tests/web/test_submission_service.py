"""Submissions that come at once: rules that count let in as many as they say, whatever kind of rules they are."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from oarlock.config import Config
from oarlock.job.admission.admit import RuleResult
from oarlock.job.admission.payload import SubmissionPayload
from oarlock.model.job import JobState
from oarlock.model.submission_errors import RefusedByRule
from oarlock.store.engine.database import Database
from oarlock.store.queries.site import administration
from oarlock.web.identity import UserAccount
from oarlock.web.submission_service import AcceptedSubmission, SubmissionService
from tests.bed import run_async
from tests.job.submitter import add_cluster
from tests.store.cluster import NOW, step
from tests.web.nodeless_server import NodelessServer

ADA = UserAccount("ada", 1001, ())


async def _at_once(desk: SubmissionService, count: int, **fields: Any) -> list[AcceptedSubmission | BaseException]:
    asked = [
        desk.take(SubmissionPayload(command="true", **fields), ADA, request_id=str(place)) for place in range(count)
    ]
    return await asyncio.gather(*asked, return_exceptions=True)


def _let_in(answers: list[AcceptedSubmission | BaseException]) -> int:
    assert all(isinstance(one, AcceptedSubmission | RefusedByRule) for one in answers)
    return sum(isinstance(one, AcceptedSubmission) for one in answers)


@run_async
async def test_reservations_at_once_get_in_as_far_as_the_rules_allow(database: Database, tmp_path: Path):
    database.write(add_cluster)
    desk = SubmissionService(NodelessServer(tmp_path, Config(), database))
    assert _let_in(await _at_once(desk, 60, reservation=2_000_000)) == 2
    with database.read() as tx:
        assert administration.waiting_reservations(tx, "ada") == 2


@run_async
async def test_a_python_rule_that_counts_is_asked_again_when_others_were_stored(database: Database, tmp_path: Path):
    async def run(_path: Path, asked: Mapping[str, Any]) -> RuleResult:
        await asyncio.sleep(0)
        few = asked["context"]["waiting_jobs"] < 3
        return RuleResult(job=asked["job"]) if few else RuleResult(reject="Three are enough.")

    (tmp_path / "50-few.py").touch()
    database.write(add_cluster)
    desk = SubmissionService(NodelessServer(tmp_path, Config(admission_rules_dir=tmp_path), database), run)
    assert _let_in(await _at_once(desk, 12)) == 3


@run_async
async def test_a_job_that_is_submitted_again_passes_the_rules(database: Database, tmp_path: Path):
    database.write(add_cluster)
    server = NodelessServer(tmp_path, Config(admission_rules_dir=tmp_path), database)
    first = (await SubmissionService(server).take(SubmissionPayload(command="true"), ADA, request_id="first")).first
    database.write(lambda tx: step(tx, first, JobState.ERROR, at=NOW + 1))
    (tmp_path / "50-closed.toml").write_text('[[rule]]\nname = "closed"\nreject = "Nothing is let in today."\n')
    with pytest.raises(RefusedByRule, match="Nothing is let in today"):
        await SubmissionService(server).take(SubmissionPayload(resubmit=first.id), ADA, request_id="again")
