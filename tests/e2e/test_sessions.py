"""Sessions as programs use them: commands on nodes of a job, and what clients may not do."""

import contextlib
import json
import os
import re
import signal
from pathlib import Path

import pytest

from oarlock.model.job import JobState
from oarlock.node.wire.stream import (
    CONTROL,
    DATA,
    EOF,
    SIGNAL,
    STDIN,
    STDOUT,
    WINDOW,
    encode_frame,
    encode_message,
)
from tests.bed import needs_root, script, site_directory
from tests.e2e.instance import Instance, instance
from tests.e2e.terminal import RawSession, job_of, piped, raw_session, terminal, token_of
from tests.waiting import wait_until

pytestmark = needs_root


@pytest.fixture(scope="module")
def running(shop, users):
    """A job on two nodes that runs for as long as the tests of this module."""
    job = job_of(piped(shop, users[0], "-l", "/network_address=2/core=1,walltime=1", "sleep 3600")[1].encode())
    shop.until(lambda: shop.job(job).state is JobState.RUNNING)
    yield job
    shop.delete(job)


def _began(session: RawSession, node: str) -> None:
    assert session.event() == {"event": "session", "node": node, "received": 0}


def test_a_command_has_its_streams_apart_and_ends_with_its_status(shop, users, running):
    with raw_session(shop, users[0], job=running, command="id -un; cat; echo oops >&2; exit 5") as session:
        _began(session, shop.nodes[0])
        session.queue(STDIN, "grüße\n".encode())
        session.queue(EOF)
        out, err, end = session.output()
    assert (out.decode(), err, end) == (f"{users[0]}\ngrüße\n", b"oops\n", {"status": 5 << 8, "ended": ""})


def test_a_command_runs_in_the_jobs_group_on_any_node_of_the_job(shop, users, running):
    shows = "cat $OAR_NODEFILE; grep -c . $OAR_RESOURCE_PROPERTIES_FILE; echo $OAR_JOB_ID; cat /proc/self/cgroup"
    with raw_session(shop, users[0], job=running, node=shop.nodes[1], command=shows) as session:
        _began(session, shop.nodes[1])
        lines = session.output()[0].decode().splitlines()
    assert lines[:4] == [*shop.nodes, "2", str(running)]
    assert any(line.endswith(f"/{shop.nodes[1]}/{users[0]}_{running}") for line in lines)


def test_a_node_that_is_not_of_the_job_is_refused_by_its_name(shop, users, running):
    with raw_session(shop, users[0], job=running, node="elsewhere", command="true") as session:
        refused = session.event()["refused"]
    assert (refused["kind"], refused["error"]) == ("NodeNotOfJob", f"elsewhere is not a node of job {running}.")


def test_a_signal_reaches_the_command(shop, users, running):
    # `wait` is interrupted by a trap; a command in the foreground would be waited for first.
    command = "trap 'echo usr1; exit 4' USR1; echo up; sleep 60 > /dev/null 2>&1 & wait"
    with raw_session(shop, users[0], job=running, command=command) as session:
        _began(session, shop.nodes[0])
        while session.receiver.feed(session.frame()[1:]) == []:
            pass
        session.queue(SIGNAL, bytes([signal.SIGUSR1]))
        out, _, end = session.output()
    assert (out, end["status"]) == (b"usr1\n", 4 << 8)


def test_what_nobody_reads_stops_at_the_window_and_is_all_there_later(shop, users, running):
    counts = "seq 1000000 1200000"
    with raw_session(shop, users[0], job=running, command=counts) as session:
        _began(session, shop.nodes[0])
        name = session.name
        shop.until(lambda: _is_blocked(counts))
        out, _, end = session.output()
        assert (len(out.split()), end["status"]) == (200_001, 0)
    with raw_session(shop, users[0], job=running, session=name, again=True, received=0) as late:
        assert late.event()["refused"]["kind"] == "SessionRefused"


def _is_blocked(command: str) -> bool:
    """Whether a command waits for somebody to read what it wrote."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cmdline").read_text().rstrip("\0").split("\0") == command.split():
                return "pipe_write" in (process / "wchan").read_text()
    return False


def test_a_session_is_joined_again_by_its_owner_and_nobody_else(shop, users, running):
    with raw_session(shop, users[0], job=running, command="echo one; read x; echo $x") as first:
        _began(first, shop.nodes[0])
        [message] = first.receiver.feed(first.frame()[1:])
        assert (message.kind, message.data) == (STDOUT, b"one\n")
        again = {"job": running, "session": first.name, "again": True, "received": first.receiver.received}
        with raw_session(shop, users[1], **again) as thief:
            assert thief.event()["refused"]["kind"] == "NotJobOwner"
        with raw_session(shop, users[0], **{**again, "session": "0" * 32}) as guess:
            assert guess.event()["refused"]["kind"] == "SessionRefused"
        with raw_session(shop, users[0], **again) as second:
            assert second.event()["event"] == "session"
            second.queue(STDIN, b"two\n")
            assert second.output()[0] == b"two\n"


def test_a_client_that_sends_more_than_its_window_is_hung_up_on(shop, users, running):
    with raw_session(shop, users[0], job=running, command="sleep 60; echo late") as session:
        _began(session, shop.nodes[0])
        with pytest.raises(ConnectionError):
            _send_for_ever(session)
    shop.until(lambda: "bytes at once" in shop.log())


def _send_for_ever(session: RawSession) -> None:
    while True:
        session.send(DATA + encode_message(STDIN, bytes(WINDOW // 2)))


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (DATA + b"x", "begins with a request"),
        (CONTROL + b"{", "cannot be read"),
        (CONTROL + b"\xff", "cannot be read"),
        (CONTROL + b'{"job": "x"}', "cannot be read"),
        (CONTROL + json.dumps({"job": 1, "session": "short"}).encode(), "cannot be read"),
        (CONTROL + json.dumps({"job": 1, "session": "../" * 12}).encode(), "cannot be read"),
        (CONTROL + json.dumps({"job": 1, "session": "0" * 32, "more": 1}).encode(), "unknown field"),
        (CONTROL + json.dumps({"job": -1, "session": "0" * 32}).encode(), "There is no job -1."),
        (CONTROL + json.dumps({"job": 1 << 80, "session": "0" * 32}).encode(), "There is no job 12"),
    ],
)
def test_what_is_not_a_request_for_a_session_is_refused(shop, users, payload, words):
    with raw_session(shop, users[0]) as session:
        session.send(payload)
        refused = session.event()["refused"]
        assert words in refused["error"]
        assert session.frame() == b""


def test_a_frame_that_no_window_holds_ends_the_connection(shop, users):
    with raw_session(shop, users[0]) as session:
        session.connection.sendall(b"\xff\xff\xff\xff" + bytes(100))
        assert "cannot be read" in session.event()["refused"]["error"]
        assert session.frame() == b""


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"command": "x\0y"}, "without NUL"),
        ({"terminal": [-1, 5]}, "not the size of a terminal"),
        ({"environment": {"A": "x\0y"}}, "without NUL"),
        ({"main": True}, "is not interactive"),
    ],
    ids=["command", "terminal", "environment", "main"],
)
def test_a_request_that_makes_no_sense_to_the_node_is_refused(shop, users, running, wish, words):
    with raw_session(shop, users[0], job=running, **wish) as session:
        assert words in session.event()["refused"]["error"]


def test_a_user_has_no_more_sessions_than_the_site_allows(shop, users, running):
    sessions = [RawSession(shop, users[0], job=running, command="cat") for _ in range(8)]
    for session in sessions:
        assert session.event()["event"] == "session"
    with raw_session(shop, users[0], job=running, command="cat") as refused:
        assert refused.event()["refused"]["kind"] == "TooManyAtOnce"
    for session in sessions:
        session.close()
    wait_until(lambda: _is_admitted(shop, users[0], running))


def _is_admitted(site: Instance, user: str, job: int) -> bool:
    with raw_session(site, user, job=job, command="true") as session:
        return "refused" not in session.event()


def test_a_shell_is_reached_over_the_network_with_a_token(shop, users, running):
    address = re.search(r"SERVER_HOSTNAME=\"(.*)\"\nSERVER_PORT=\"(.*)\"", shop.settings.read_text())
    assert address is not None
    variables = {"OARLOCK_SERVER": f"http://{address[1]}:{address[2]}", "OARLOCK_TOKEN": token_of(shop, users[0])}
    code, out, err = piped(shop, users[0], "-C", str(running), stdin=b"echo over $OAR_JOB_ID\n", variables=variables)
    assert (code, err, f"over {running}\n" in out) == (0, "", True)
    code, _, err = piped(shop, users[1], "-C", str(running), variables={**variables, "OARLOCK_TOKEN": "guessed"})
    assert (code, "token is not known" in err) == (8, True)


@pytest.mark.manual(203)
def test_the_shell_of_a_cosystem_job_is_on_its_frontend(shop, users):
    code, out, err = piped(
        shop, users[0], "-I", "-t", "cosystem", "-l", "/core=1,walltime=1", stdin=b"cat /proc/self/cgroup; pwd\n"
    )
    assert (code, err, "via the node 127.0.0.1" in out, str(shop.home) in out) == (0, "", True, True)
    assert f"/127.0.0.1/{users[0]}_{job_of(out.encode())}" in out


def test_a_directory_that_is_gone_ends_an_interactive_job_with_its_event(shop, users):
    code, out, err = piped(shop, users[0], "-I", "-l", "/core=1,walltime=1", "-d", "/nowhere")
    job = job_of(out.encode())
    assert (code, "/nowhere: No such file or directory" in err) == (20, True)
    shop.until(lambda: shop.job(job).state is JobState.ERROR)
    assert "WORKING_DIRECTORY" in shop.events(job)


def test_client_and_server_that_die_during_the_launch_leave_nothing_behind(workspace, users):
    with site_directory() as scripts:
        prologue = script(scripts / "prologue", f"until [ -e {workspace}/go ]; do sleep 0.05; done")
        more = {"PROLOGUE_EXEC_FILE": prologue}
        with instance(workspace, users[0], f"i{os.getpid()}l", nodes=1, more=more) as site:
            site.serve()
            with terminal(site, users[0], "-I", "-l", "/core=1,walltime=1") as gone:
                first = job_of(gone.until("Interactive mode: waiting...\r\n"))
                site.until(lambda: site.job(first).state is JobState.LAUNCHING)
                with terminal(site, users[0], "-I", "-l", "/core=1,walltime=1") as stays:
                    second = job_of(stays.until("Interactive mode: waiting...\r\n"))
                    site.until(lambda: site.job(second).state is JobState.LAUNCHING)
                    gone.kill()
                    site.until(lambda: "CANNOT_NOTIFY_OARSUB" in site.events(first))
                    site.kill()
                    site.serve()
                    (workspace / "go").touch()
                    stays.until("Connect to OAR job")
                    stays.until("$ ")
                    stays.type("exit\r")
                    assert stays.ended()[0] == 0
            site.until(site.all_over)
            assert (site.story(first)[-1], site.story(second)[-1]) == ("Error", "Terminated")


def test_frames_of_a_client_are_cut_where_they_should_be(shop, users, running):
    with raw_session(shop, users[0], job=running, command="cat") as session:
        _began(session, shop.nodes[0])
        stream = encode_message(STDIN, b"slowly") + encode_message(EOF)
        for place in range(len(stream)):
            for byte in encode_frame(DATA + stream[place : place + 1]):
                session.connection.sendall(bytes([byte]))
        assert session.output()[0] == b"slowly"
