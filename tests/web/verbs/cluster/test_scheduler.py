"""The scheduler's page: what it counts, and what it says of predicted starts."""

from oarlock.job.reactor.passes import MOST_PASSES, PassRecord, new_log
from oarlock.model.job import JobState
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.planning import predictions
from oarlock.store.queries.planning.predictions import PredictionError
from oarlock.store.queries.site import administration
from oarlock.web.verbs.cluster.scheduler import PredictionQuality, judge
from tests.clusters import add_nodes
from tests.store.cluster import add_job, step
from tests.web.nodeless_server import NOW, running

HOUR, DAY = 3600, 86_400


def _fill(tx: Tx) -> None:
    add_nodes(tx, ["n1"])
    for _ in range(3):
        add_job(tx)
    step(tx, add_job(tx), JobState.HOLD)
    administration.add_queue(tx, administration.Queue("wide", 7, "multifactor", False))
    predictions.keep_first(tx, [(1, NOW + 60)], now=NOW)


def test_the_scheduler_shows_queues_reasons_and_passes(database: Database):
    database.write(_fill)
    with running(database) as api:
        api.core.passes.append(PassRecord(NOW, 0.5, True, 2, 0))
        api.core.hopeless[2] = "never"
        shown = api.client.get("/scheduler").body
    counts = {queue["name"]: (queue["policy"], queue["counts"]["active"], queue["counts"]["waiting"],
                              queue["counts"]["held"]) for queue in shown["queues"]}  # fmt: skip
    assert counts["default"][2:] == (3, 1)
    assert counts["wide"] == ("multifactor", False, 0, 0)
    assert (shown["waiting"]["no_date"], shown["waiting"]["held"], shown["waiting"]["impossible"]) == (2, 1, 1)
    assert shown["passes"] == [{"at": NOW, "seconds": 0.5, "whole": True, "started": 2, "left": 0}]
    assert shown["weights"]["age"] == 1.0


def test_a_job_tells_its_first_predicted_start(database: Database):
    database.write(_fill)
    with running(database) as api:
        first, second, missing = (api.client.get(f"/jobs/{number}/prediction") for number in (1, 2, 99))
    assert (first.body["at"], first.body["start"], first.body["quality"]["jobs"]) == (NOW, NOW + 60, 0)
    assert second.body == {"at": None, "start": None, "quality": None}
    assert missing.status == 404


def test_predictions_are_judged_by_how_far_ahead_they_were_made():
    near = [PredictionError(600, later) for later in (0, 0, 0, 10, 20, 30, 40, 300, 5000, -90)]
    far = [PredictionError(2 * HOUR, 7200)] * 9
    assert judge([*near, *far]) == [
        PredictionQuality(HOUR, 10, 90, later=2, sooner=1),
        PredictionQuality(DAY, 9, None, later=9, sooner=0),  # too few to say anything
        PredictionQuality(None, 0, None, later=0, sooner=0),
    ]


def test_the_log_of_passes_forgets_the_oldest():
    log = new_log()
    log.extend(PassRecord(at, 0.0, True, 0, 0) for at in range(MOST_PASSES + 1))
    assert (len(log), log[0].at) == (MOST_PASSES, 1)
