"""What the owner of a job is told of."""

from oarlock.lang import options
from oarlock.model.job import JobState


def test_the_owner_is_told_of_the_start_and_the_end(cluster):
    job = cluster.submit("sleep 10", notify="mail:ada@lab.org")
    cluster.submit("sleep 10")
    cluster.finish()
    assert cluster.notified == [(job, "START", "mail:ada@lab.org"), (job, "END", "mail:ada@lab.org")]


def test_only_the_chosen_tags_are_told(cluster):
    job = cluster.submit("sleep 100", notify="[RUNNING, ERROR, SUSPENDED]mail:ada@lab.org")
    cluster.hold(job, running=True)
    cluster.resume(job)
    cluster.kill(job)
    cluster.finish()
    assert [tag for _, tag, _ in cluster.notified] == ["START", "SUSPENDED", "RUNNING", "ERROR"]


def test_the_start_alone_can_be_chosen(cluster):
    job = cluster.submit("sleep 100", notify=options.notify("[START]mail:ada@lab.org"))
    cluster.hold(job, running=True)
    cluster.resume(job)
    cluster.finish()
    assert [tag for _, tag, _ in cluster.notified] == ["START"]


def test_a_report_comes_once_at_the_end_however_the_job_ends(cluster):
    for command in ("sleep 10", "exit 3"):
        cluster.submit(command, notify=options.notify("[REPORT,END]mail:ada@lab.org"))
    killed = cluster.submit("sleep 100", notify=options.notify("[START,REPORT]mail:ada@lab.org"))
    cluster.pass_time(50)
    cluster.kill(killed)
    cluster.finish()
    assert sorted((job, tag) for job, tag, _ in cluster.notified) == [
        (1, "REPORT"), (2, "REPORT"), (3, "REPORT"), (3, "START"),
    ]  # fmt: skip


def test_the_owner_is_told_that_somebody_ends_the_job(cluster):
    running = cluster.submit("sleep 100", notify="[INFO]exec:/bin/tell")
    waiting = cluster.submit("sleep 100", notify="mail:ada@lab.org", state=JobState.HOLD)
    cluster.pass_time(1)
    cluster.kill(running, waiting)
    cluster.finish()
    assert cluster.notified == [
        (running, "INFO", "exec:/bin/tell"),
        (waiting, "INFO", "mail:ada@lab.org"),
        (waiting, "ERROR", "mail:ada@lab.org"),
    ]


def test_all_tags_come_in_their_order(cluster):
    job = cluster.submit("sleep 100", notify="mail:ada@lab.org")
    cluster.hold(job, running=True)
    cluster.resume(job)
    cluster.finish()
    assert [tag for _, tag, _ in cluster.notified] == ["START", "SUSPENDED", "RESUMING", "RUNNING", "END"]
