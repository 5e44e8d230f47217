"""For each invariant a corruptor that breaks only that one in a good database: the check names it, and nothing else."""

import pytest
from sqlalchemy import text

from oarlock.config import Config
from oarlock.job.check.finding import INVARIANTS, LIVE
from oarlock.job.check.run import check
from oarlock.model.job import Reservation
from oarlock.store.queries.job import jobs
from oarlock.store.queries.users import user_records
from oarlock.store.queries.users.user_records import AuditEntry
from tests.scenarios.cluster import Cluster

DONE, WIDE, KILLED, AFTER, LOSER, WINNER, RESERVED, LATER, RUNS, LOW, SMALL, LARGE = range(1, 13)


@pytest.fixture(scope="module")
def lived(module_database):
    """A database in which jobs of every kind lived: over, killed, depending, pre-empted, reserved, running."""
    cluster = Cluster(module_database)
    assert cluster.submit("sleep 10") == DONE
    cluster.submit("sleep 20", "/core=2,walltime=1")
    cluster.kill(cluster.submit("sleep 500"))
    cluster.submit("sleep 5", after=(DONE,))
    cluster.finish()
    cluster.submit("sleep 900", "/core=4,walltime=1", types=("besteffort",), queue="besteffort")
    cluster.pass_time(60)
    cluster.submit("sleep 5", "/core=4,walltime=0:1:0")
    cluster.finish()
    when = cluster.now + 7200
    for start in (when, when + 600):
        cluster.submit("sleep 5", "/core=4,walltime=0:5:0", reservation=Reservation.TO_SCHEDULE, start=start)
    cluster.submit("sleep 5000", "/core=1,walltime=1:30:0")
    cluster.submit("sleep 5000", "/core=2,walltime=1:30:0", types=("besteffort",), queue="besteffort")
    for cores in (1, 2):
        held = cluster.submit("sleep 5", f"/core={cores},walltime=0:1:0", after=(RESERVED,))
        assert [answer.done for answer in cluster.hold(held)] == [True]
    cluster.pass_time(60)
    states = [str(cluster.job(number).state) for number in (LOSER, RESERVED, RUNS, LOW, SMALL, LARGE)]
    assert states == ["Error", "Waiting", "Running", "Running", "Hold", "Hold"]
    entry = AuditEntry(cluster.now, "root", "", "kill", "socket", "{}")
    module_database.write(lambda tx: user_records.add_audit(tx, entry))
    return module_database


def _moldable(job: int) -> str:
    return f"(SELECT moldable_id FROM moldable_job_descriptions WHERE moldable_job_id = {job})"


LOG = "job_state_logs"
CORRUPTORS = {
    "two jobs on one resource": (
        1,
        f"UPDATE {LOG} SET job_state_log_id = -job_state_log_id WHERE job_id = {KILLED}",
        (
            f"UPDATE {LOG} SET job_state_log_id = (SELECT max(job_state_log_id) FROM {LOG}) + 100 - job_state_log_id "
            f"WHERE job_id = {KILLED}"
        ),
        (
            f"INSERT INTO assigned_resources (moldable_job_id, resource_id, assigned_resource_index) "
            f"SELECT {_moldable(KILLED)}, resource_id, 'LOG' FROM assigned_resources "
            f"WHERE moldable_job_id = {_moldable(RUNS)} AND resource_id NOT IN "
            f"(SELECT resource_id FROM assigned_resources WHERE moldable_job_id = {_moldable(KILLED)})"
        ),
    ),
    "two reservations at once": (
        2,
        f"UPDATE gantt_jobs_predictions SET start_time = start_time + 60 WHERE moldable_job_id = {_moldable(RESERVED)}",
        f"UPDATE moldable_job_descriptions SET moldable_walltime = 900 WHERE moldable_job_id = {RESERVED}",
    ),
    "fewer resources than asked": (
        3,
        (
            f"UPDATE job_resource_descriptions SET res_job_value = 9 WHERE res_job_group_id "
            f"IN (SELECT res_group_id FROM job_resource_groups WHERE res_group_moldable_id = {_moldable(WIDE)})"
        ),
    ),
    "a gap in the states": (
        4,
        f"UPDATE {LOG} SET date_stop = date_stop + 1 WHERE job_id = {DONE} AND job_state = 'Launching'",
    ),
    "an illegal move": (5, f"UPDATE {LOG} SET job_state = 'Hold' WHERE job_id = {DONE} AND job_state = 'toLaunch'"),
    "a job that is over holds": (
        6,
        f"UPDATE assigned_resources SET assigned_resource_index = 'CURRENT' WHERE moldable_job_id = {_moldable(DONE)}",
    ),
    "a kill that never ends": (6, f"UPDATE frag_jobs SET frag_state = 'LEON' WHERE frag_id_job = {KILLED}"),
    "a second attempt after a start": (
        8,
        (
            f"INSERT INTO attempts (job_id, number, secret_hash, opened_us, closed_us, generation) "
            f"SELECT job_id, 2, 'x', opened_us, closed_us, generation FROM attempts WHERE job_id = {DONE}"
        ),
    ),
    "an open attempt of a job that is over": (8, f"UPDATE attempts SET closed_us = NULL WHERE job_id = {DONE}"),
    "submitted after its start": (9, f"UPDATE jobs SET submission_time = start_time + 1 WHERE job_id = {DONE}"),
    "accounting of another sum": (
        10,
        "UPDATE accounting SET consumption = consumption + 1 WHERE consumption_type = 'USED'",
    ),
    "a reservation without a place": (
        11,
        f"DELETE FROM gantt_jobs_predictions WHERE moldable_job_id = {_moldable(RESERVED)}",
    ),
    "a dependency that came later": (
        12,
        f"UPDATE job_dependencies SET job_id_required = {RUNS} WHERE job_id = {AFTER}",
    ),
    "an ordinary job pre-empted": (13, f"UPDATE event_logs SET job_id = {WIDE} WHERE type = 'BESTEFFORT_KILL'"),
    "a copy that is gone": (
        13,
        (
            f"INSERT INTO event_logs (event_id, type, job_id, date, description) "
            f"VALUES (999999, 'RESUBMIT_JOB_AUTOMATICALLY', {LOSER}, 1000000, '')"
        ),
    ),
    "two copies by itself": (
        13,
        f"UPDATE jobs SET resubmit_job_id = {LOSER} WHERE job_id = {RUNS}",
        (
            f"INSERT INTO event_logs (event_id, type, job_id, date, description) "
            f"SELECT 999990 + job_id, 'RESUBMIT_JOB_AUTOMATICALLY', {LOSER}, 1000000, '' FROM jobs WHERE job_id < 3"
        ),
    ),
    "a hole in an array": (14, f"UPDATE jobs SET array_index = 2 WHERE job_id = {DONE}"),
    "a failure without an event": (
        15,
        "DELETE FROM event_log_hostnames",
        f"DELETE FROM event_logs WHERE job_id = {KILLED}",
    ),
    "a resource with another history": (
        15,
        (
            "UPDATE resource_logs SET value = 'Absent' WHERE attribute = 'state' AND "
            "resource_id = (SELECT min(resource_id) FROM resources)"
        ),
    ),
    "a queue that is gone": (16, f"UPDATE jobs SET queue_name = 'gone' WHERE job_id = {RUNS}"),
    "a quota exceeded": (16, "INSERT INTO quotas (position, user_name, resources) VALUES (1, 'ada', 1)"),
    "a private key": (19, f"INSERT INTO challenges (job_id, challenge, ssh_private_key) VALUES ({DONE}, '', 'secret')"),
    "a plain token": (19, "INSERT INTO tokens (token_hash, user_name) VALUES ('hunter2', 'ada')"),
    "rows of no job": (20, f"INSERT INTO {LOG} (job_state_log_id, job_id) VALUES (999999, 12345)"),
    "an edited audit": (20, "UPDATE audit SET user_name = 'eve'"),
    "more processor time than there was": (
        21,
        f"INSERT INTO job_summaries (job_id, cpu_seconds, core_seconds) VALUES ({DONE}, 100, 10)",
    ),
    "measured before it ran": (
        21,
        (
            f"INSERT INTO monitoring_samples (job_id, network_address, date, metric, value) "
            f"SELECT {DONE}, network_address, 1, 'cpu', 1 FROM attempt_nodes WHERE job_id = {DONE}"
        ),
    ),
    "measured for longer than it ran": (
        21,
        f"INSERT INTO job_summaries (job_id, coverage, samples) VALUES ({DONE}, 1.5, 3)",
    ),
    "measured and never began": (
        21,
        f"UPDATE attempts SET started_us = NULL WHERE job_id = {DONE}",
        f"INSERT INTO job_summaries (job_id, coverage, samples) VALUES ({DONE}, 1.0, 3)",
    ),
    "measured where it never ran": (
        21,
        (
            f"INSERT INTO monitoring_samples (job_id, network_address, date, metric, value) "
            f"VALUES ({DONE}, 'elsewhere', 1, 'cpu', 1)"
        ),
    ),
    "a foreign generation": (22, f"UPDATE attempts SET generation = 'other' WHERE job_id = {DONE}"),
}


class _Undone(Exception):
    """Carries what a check found out of a transaction that must not be kept."""


def _check_corrupted(database, *statements, **instant):
    """Return what a check finds after some statements, which are then taken back."""

    def corrupt(tx):
        for statement in statements:
            assert tx.execute(text(statement)).rowcount, "the corruptor changed nothing"
        raise _Undone(check(tx, Config(), thorough=True, **instant))

    with pytest.raises(_Undone) as undone:
        database.write(corrupt)
    return undone.value.args[0]


def test_a_good_database_has_no_finding(lived):
    assert _check_corrupted(lived) == []


@pytest.mark.parametrize("name", CORRUPTORS)
def test_a_corruptor_is_named_and_nothing_else(lived, name):
    invariant, *statements = CORRUPTORS[name]
    findings = _check_corrupted(lived, *statements)
    assert {finding.invariant for finding in findings} == {invariant}, findings


HANGING = (
    f"UPDATE jobs SET state = 'Finishing' WHERE job_id = {RUNS}",
    f"UPDATE {LOG} SET job_state = 'Finishing' WHERE job_id = {RUNS} AND job_state = 'Running'",
    f"UPDATE {LOG} SET job_state = 'Running' WHERE job_id = {RUNS} AND job_state = 'Launching'",
    f"UPDATE {LOG} SET job_state = 'Launching' WHERE job_id = {RUNS} AND job_state = 'toLaunch'",
    f"UPDATE {LOG} SET job_state = 'toLaunch' WHERE job_id = {RUNS} AND job_state = 'Waiting'",
    (
        f"INSERT INTO {LOG} (job_state_log_id, job_id, job_state, date_start, date_stop) "
        f"SELECT -1, job_id, 'Waiting', date_start, date_start FROM {LOG} "
        f"WHERE job_id = {RUNS} AND job_state = 'toLaunch'"
    ),
)


def test_a_job_that_hangs_in_passing_is_named_while_its_node_answers(lived):
    with lived.read() as tx:
        began = jobs.state_history(tx, RUNS)[-1][1]
    late = _check_corrupted(lived, *HANGING, now=began + 10_000)
    soon = _check_corrupted(lived, *HANGING, now=began + 10)
    assert {finding.invariant for finding in late} == {7}
    assert soon == []


def _released(job: int) -> tuple[str, ...]:
    """Let a job that is held wait for nothing, as if its release had been forgotten before a pass was asked for."""
    return (
        f"DELETE FROM {LOG} WHERE job_id = {job} AND job_state = 'Waiting'",
        f"UPDATE {LOG} SET job_state = 'Waiting' WHERE job_id = {job}",
        f"UPDATE jobs SET state = 'Waiting' WHERE job_id = {job}",
        f"DELETE FROM job_dependencies WHERE job_id = {job}",
    )


@pytest.mark.parametrize(("job", "invariant", "named"), [(SMALL, 7, SMALL), (LARGE, 13, LOW)])
def test_a_job_that_waits_for_nothing_is_named(lived, job, invariant, named):
    with lived.read() as tx:
        waits = jobs.state_history(tx, job)[-1][1]
    late = _check_corrupted(lived, *_released(job), now=waits + 1000)
    soon = _check_corrupted(lived, *_released(job), now=waits + 100)
    assert [(finding.invariant, finding.job) for finding in late] == [(invariant, named)]
    assert soon == []


@pytest.mark.parametrize(("job", "invariant"), [(RUNS, 7), (LOW, 13)])
def test_a_kill_without_effect_is_named_unless_the_node_is_away(lived, job, invariant):
    kill = f"INSERT INTO frag_jobs (frag_id_job, frag_date, frag_state) VALUES ({job}, 1000000, 'LEON')"
    event = (
        f"INSERT INTO event_logs (event_id, type, job_id, date, description) "
        f"VALUES (999999, 'BESTEFFORT_KILL', {LOW}, 1000000, '')"
    )
    away = "UPDATE resources SET state = 'Suspected'", "UPDATE resource_logs SET value = 'Suspected'"
    with lived.read() as tx:
        late = jobs.state_history(tx, job)[-1][1] + 5000
    findings = _check_corrupted(lived, kill, event, now=late)
    assert {(finding.invariant, finding.job) for finding in findings if finding.job == job} == {(invariant, job)}
    assert [finding for finding in _check_corrupted(lived, kill, event, *away, now=late) if finding.job == job] == []


def test_a_job_cut_off_is_named_when_its_lease_is_long_over(lived):
    away = "UPDATE resources SET state = 'Suspected'", "UPDATE resource_logs SET value = 'Suspected'"
    with lived.read() as tx:
        began = jobs.state_history(tx, RUNS)[-1][1]
    during, after = (
        {finding.invariant for finding in _check_corrupted(lived, *HANGING, *away, now=began + seconds)}
        for seconds in (5000, 12_000)
    )
    assert (during, after) == (set(), {7})


def test_a_quota_of_the_sites_file_is_looked_at(lived, tmp_path):
    file = tmp_path / "quotas.json"
    file.write_text('{"quotas": {"*,*,*,ada": [1, -1, -1]}}')
    with lived.read() as tx:
        findings = check(tx, Config(quotas=True, quotas_conf_file=file))
    assert {finding.invariant for finding in findings} == {16}


def test_a_job_that_began_beyond_a_quota_is_named(lived):
    def found(since):
        def corrupt(tx):
            tx.execute(text("INSERT INTO quotas (position, queue_name, resources) VALUES (1, 'default', 3)"))
            user_records.add_audit(tx, AuditEntry(since, "root", "", "quotas.add", "socket", "{}"))
            raise _Undone(check(tx, Config()))

        with pytest.raises(_Undone) as undone:
            lived.write(corrupt)
        return undone.value.args[0]

    with lived.read() as tx:
        began = jobs.get(tx, WINNER).start
    assert {finding.invariant for finding in found(1)} == {16}
    assert WINNER in {finding.job for finding in found(1)}
    assert [finding.job for finding in found(began)] == [WINNER]
    assert found(began + 1) == []
    assert (
        _check_corrupted(lived, "INSERT INTO quotas (position, queue_name, resources) VALUES (1, 'default', 3)") == []
    )


def test_every_invariant_has_a_corruptor():
    assert {number for number, *_ in CORRUPTORS.values()} | {7} | LIVE == set(INVARIANTS)
