"""`oarsub --notify exec:` in the life of a job: the program runs as its owner, with what the manual gives it."""

import os

import pytest

from tests.bed import needs_root, script
from tests.e2e.instance import instance

pytestmark = needs_root


@pytest.fixture
def front(workspace, two_users):
    name = f"f{os.getpid()}n"
    with instance(workspace, two_users[0], name, nodes=1, more={"NOTIFY_HOSTNAME": f"{name}1"}) as made:
        yield made


@pytest.mark.manual(21, 198)
def test_the_owners_program_is_told_of_the_start_and_the_end(front, two_users):
    told = front.home / "told"
    program = script(front.home / "tell", f'(id -un; printf "<%s>" "$@"; echo) >> {told}')
    job = front.submit("true", name="fit $(x)", notify=f"exec:{program} -v 'a b'")
    begun = front.home / "begun"
    chosen = script(front.home / "tell beginnings", f'echo "$1 $2 $4" >> {begun}')
    second = front.submit("true", notify=f"[START]exec:'{chosen}' about")
    front.start()
    front.until(lambda: front.all_over() and told.exists() and told.read_text().count("\n") == 4)
    who, start, _, end = told.read_text().splitlines()
    assert who == two_users[0]
    assert start == f"<-v><a b><{job}><fit $(x)><START><its command runs on {front.nodes[0]}>"
    assert end == f"<-v><a b><{job}><fit $(x)><END><everything is cleaned>"
    assert "USER_EXEC_NOTIFICATION_ERROR" not in front.events(job)
    front.until(lambda: not front.unsent())
    assert begun.read_text() == f"about {second} START\n"


def test_a_program_that_is_not_there_is_an_event_and_no_harm_to_the_job(front):
    job = front.submit("true", notify="[END]exec:/nowhere/tell")
    front.start()
    front.until(lambda: "USER_EXEC_NOTIFICATION_ERROR" in front.events(job))
    assert front.story(job)[-1] == "Terminated"


def test_an_unsent_notice_of_a_killed_server_is_sent_by_the_next(front):
    told, go_on = front.home / "told", front.home / "go on"
    # The first program keeps the owner's others waiting, inside of the server.
    program = script(front.home / "tell", f'echo "$4" >> {told}; while [ ! -e "{go_on}" ]; do sleep 0.05; done')
    job = front.submit("true", name="fit", notify=f"exec:{program} about")
    front.start()
    front.until(lambda: front.all_over() and told.exists() and told.read_text())
    assert told.read_text() == "START\n"
    front.kill()
    go_on.touch()
    front.start()
    front.until(lambda: not front.unsent())
    # What was under way is told again: at least once, and the end after the start.
    assert told.read_text().splitlines() == ["START", "START", "END"]
    assert "USER_EXEC_NOTIFICATION_ERROR" not in front.events(job)
