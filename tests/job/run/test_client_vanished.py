"""Interactive jobs whose waiting client is gone."""

from oarlock.config import Config
from oarlock.job.run import kill
from oarlock.job.run.unit_of_work import StepContext
from oarlock.model.job import JobKind, JobState
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.job import jobs
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job


def test_only_a_waiting_interactive_job_ends_with_its_client_and_once(tx: Tx):
    add_nodes(tx, ["node1"])
    context = StepContext(Config(), b"key")
    shell, batch = add_job(tx, kind=JobKind.INTERACTIVE), add_job(tx)
    for _ in range(2):
        kill.client_vanished(tx, context, [shell.id, batch.id, 99999], now=NOW)
    states = [job.state for job in jobs.existing(tx, [shell.id, batch.id])]
    assert states == [JobState.ERROR, JobState.WAITING]
    noted = [str(row.event.type) for row in events.of_jobs(tx, [shell.id, batch.id])]
    assert noted == ["CANNOT_NOTIFY_OARSUB", "FRAG_JOB_REQUEST", "SWITCH_INTO_ERROR_STATE"]
