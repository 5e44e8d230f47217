"""A scheduler of the site's own: the example of its page plans a queue; where one fails, the built-in policy does."""

import os
import re
from pathlib import Path

import pytest

from oarlock.client import Client, RequestRefused
from oarlock.model.event import EventType
from oarlock.model.job import JobState
from oarlock.model.snapshot import Queue
from oarlock.store.queries.cluster import events
from oarlock.store.queries.site import administration
from oarlock.store.queries.usage.history import read_full_history
from tests.bed import needs_root, script, site_directory
from tests.e2e.instance import instance

pytestmark = needs_root

PAGE = Path(__file__).parents[2] / "docs" / "running-a-site" / "own-scheduler.md"
WHOLE_NODE = "/network_address=1,walltime="


@pytest.fixture
def folder():
    with site_directory() as path:
        yield path


@pytest.fixture
def made(workspace, two_users, folder):
    more = {"SCHEDULER_PROGRAM_DIR": folder, "SCHEDULER_TIMEOUT": 1}
    with instance(workspace, two_users[0], f"s{os.getpid()}n", nodes=1, more=more) as made:
        yield made


def began(made, job):
    """Return the place of a job's start in the order of everything that happened."""
    with made.database.read() as tx:
        stays = read_full_history(tx).stays[job]
    return next(stay.turn for stay in stays if stay.state is JobState.TO_LAUNCH)


def errors(made):
    with made.database.read() as tx:
        noted = events.after(tx, 0, {EventType.SITE_SCHEDULER_ERROR}, most=99)
    return [row.event.description for row in noted]


def test_the_example_of_the_page_plans_a_queue(made, folder):
    [example] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (folder / "shortest-first").write_text(example)
    (folder / "shortest-first").chmod(0o755)
    made.database.write(lambda tx: administration.change_queue(tx, Queue("default", 2, "program:shortest-first")))
    long, middle, short = (made.submit("true", WHOLE_NODE + walltime) for walltime in ("3", "2", "1"))
    greedy = made.submit("true", "/core=BEST,walltime=1")
    made.serve()
    made.until(lambda: all(made.story(job)[-1] == "Terminated" for job in (long, middle, short)))
    assert sorted([long, middle, short], key=lambda job: began(made, job)) == [short, middle, long]
    client = Client(str(made.state / "server.sock"))
    assert client.why(greedy)["says"] == "`shortest-first`, the scheduler of its queue, gave it no place"
    client.change_queue({"name": "default", "priority": 2, "policy": "easy"})
    made.until(lambda: made.story(greedy)[-1] == "Terminated")
    assert errors(made) == []
    script(folder / "planless", "true")
    client.change_queue({"name": "default", "priority": 2, "policy": "planless"})
    assert [queue["policy"] for queue in client.queues() if queue["name"] == "default"] == ["program:planless"]
    (folder / "planless").chmod(0o777)
    for policy, why in (
        ("planless", "cannot be used: "),
        ("../planless", "`../planless` cannot be the `policy`"),
        ("nosuch", "no policy"),
    ):
        with pytest.raises(RequestRefused, match=why):
            client.add_queue({"name": "other", "priority": 1, "policy": policy})


def test_a_program_that_fails_lies_or_hangs_leaves_its_queue_alone(made, folder):
    programs = {
        "fails": "echo no idea >&2; exit 3",
        "lies": """sed 's/.*"job_id":\\([0-9]*\\).*/{"placements":[{"job_id":\\1,"resources":[99]}]}/'""",
        "babbles": "echo '{\"placement\": []}'",
        "hangs": "sleep 60 & sleep 60",
    }
    for name, text in programs.items():
        script(folder / name, text)
        made.database.write(lambda tx, name=name: administration.add_queue(tx, Queue(name, 5, f"program:{name}")))
    jobs = {name: made.submit("true", queue=name) for name in [*programs, "default"]}
    made.start()
    made.until(made.all_over)
    assert {made.story(job)[-1] for job in jobs.values()} == {"Terminated"}
    # The queue of a lower priority waited for nobody's answer.
    assert min(jobs, key=lambda name: began(made, jobs[name])) != "hangs"
    assert began(made, jobs["default"]) < began(made, jobs["hangs"])
    told = sorted(says.partition("; until its scheduler")[0] for says in errors(made))
    assert told == [
        f"queue babbles: {folder}/babbles printed what is not an answer: Object contains unknown field `placement`",
        f"queue fails: {folder}/fails ended with exit 3: no idea",
        f"queue hangs: {folder}/hangs did not end within 1 s",
        f"queue lies: {folder}/lies gave a place that cannot be: job {jobs['lies']}: there is no resource 99",
    ]
