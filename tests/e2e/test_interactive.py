"""`oarsub -I` and `-C` on real terminals: shells of users in their jobs, on nodes of this machine and behind sshd."""

import contextlib
import os
import re
import signal
from collections.abc import Iterator

import pytest

from oarlock.client import Client
from oarlock.model.job import JobState
from tests.bed import needs_root
from tests.e2e.cluster import cluster
from tests.e2e.instance import Instance
from tests.e2e.terminal import Terminal, job_of, piped, seen_as, terminal
from tests.waiting import wait_until

pytestmark = needs_root

NORMAL = ["Waiting", "toLaunch", "Launching", "Running", "Finishing", "Terminated"]
CORE = "/core=1,walltime=1"
PROMPT = "$ "


def _shell(opened: Terminal) -> int:
    """Wait for the prompt of a new shell; give the number of its job."""
    shown = opened.until("Connect to OAR job ")
    number = int(opened.until(b" via the node ").split()[0])
    assert b"OAR_JOB_ID=" not in shown or job_of(shown) == number
    opened.until(PROMPT)
    return number


@contextlib.contextmanager
def _occupied(site: Instance, user: str) -> Iterator[None]:
    """Keep all cores busy."""
    job = job_of(piped(site, user, "-l", "/core=4,walltime=1", "sleep 600")[1].encode())
    try:
        yield
    finally:
        site.delete(job)


def _until_over(site: Instance, job: int) -> None:
    site.until(lambda: site.job(job).state in {JobState.TERMINATED, JobState.ERROR})


@pytest.mark.manual(2, 187)
def test_an_interactive_job_is_a_shell_on_its_node_and_ends_with_it(shop, users):
    with terminal(shop, users[0], "-I", "-l", CORE) as shell:
        shown = shell.until("Connect to OAR job ").decode()
        job = job_of(shown.encode())
        lines = [line for line in shown.splitlines() if not line.startswith("[")]
        assert lines == [f"OAR_JOB_ID={job}", "Interactive mode: waiting...", "Starting...", "Connect to OAR job "]
        shell.until(PROMPT)
        shell.type(
            "echo; id -un; pwd; stty size; echo $OAR_JOB_ID.$TERM; cat $OAR_NODEFILE; cat /proc/self/cgroup; echo end\r"
        )
        shell.until("echo end\r\n")
        text = shell.until("end\r\n").decode()
        wanted = [users[0], str(shop.home), "24 80", f"{job}.xterm"]
        assert [line for line in text.split("\r\n") if line in wanted] == wanted
        assert f"/{users[0]}_{job}\r\n" in text
        shell.resize(40, 100)
        shell.type("stty size\r")
        shell.until("40 100\r\n")
        shell.type("sh -c 'echo fore''ground; exec sleep 600'\r")
        shell.until("foreground\r\n")  # before that the key would interrupt the shell that is about to fork
        shell.type("\x03")
        shell.until(PROMPT)
        shell.type("sh -c 'echo to be sto''pped; exec sleep 600'\r")
        shell.until("to be stopped\r\n")
        shell.type("\x1a")
        shell.until("Stopped")
        shell.until(PROMPT)
        shell.type("kill -9 %1; disown %1\r")
        shell.until(PROMPT)
        shell.type("exit 3\r")
        code, rest = shell.ended()
        assert (code, b"logout" in rest, b"Disconnected from OAR job %d." % job in rest) == (0, True, True)
    _until_over(shop, job)
    assert (shop.story(job), shop.job(job).exit_code) == (NORMAL, 3 << 8)


def test_without_a_terminal_the_shell_reads_standard_input(shop, users):
    code, out, err = piped(
        shop, users[0], "-I", "-l", CORE, stdin=b"echo out; echo err >&2; tty; wc -c; exit 7\nhello\n"
    )
    lines = out.splitlines()
    assert lines[lines.index("out") :][:3] == ["out", "not a tty", "6"]
    assert (code, err, lines[-1].startswith("Disconnected from OAR job ")) == (0, "err\n", True)


def test_a_megabyte_pasted_through_cat_arrives_whole(shop, users):
    with terminal(shop, users[0], "-I", "-l", CORE) as shell:
        _shell(shell)
        shell.type("stty -echo; PS1='[ready]'; echo\r")
        shell.until("2004h[ready]")
        line = b"0123456789abcdef" * 63 + b"\r"
        shell.type("echo $((20 + 1)) is ready; cat > pasted; wc -c pasted\r")
        shell.until("21 is ready")
        shell.type(line * 1040 + b"\x04")
        shell.until(f"{len(line) * 1040} pasted")
        shell.type("exit\r")
        assert shell.ended()[0] == 0


def test_ten_megabytes_that_are_printed_before_the_exit_arrive_whole(shop, users):
    with terminal(shop, users[0], "-I", "-l", CORE) as shell:
        _shell(shell)
        shell.type("stty -opost; seq 1000000 2249999; exit\r")
        code, rest = shell.ended()
        assert code == 0
        numbers = re.findall(rb"[0-9]{7}(?=\n)", rest)
        assert (len(numbers), numbers[0], numbers[-1]) == (1_250_000, b"1000000", b"2249999")


@pytest.mark.component("vi")
def test_vi_is_drawn_on_the_whole_terminal_and_left(shop, users):
    with terminal(shop, users[0], "-I", "-l", CORE, size=(30, 90)) as shell:
        _shell(shell)
        shell.type("vi -u NONE -n written\r")
        shell.until("\x1b[30;1H")  # the last line
        shell.type("igrüße\x1b:wq\r")
        shell.until(PROMPT)
        shell.type("exit\r")
        assert shell.ended()[0] == 0
    assert (shop.home / "written").read_text() == "grüße\n"


@pytest.mark.manual(3)
def test_another_shell_joins_the_job_and_does_not_end_it(shop, users):
    with terminal(shop, users[0], "-I", "-l", CORE) as first:
        job = _shell(first)
        with terminal(shop, users[0], "-C", str(job)) as second, terminal(shop, users[0], "-C", str(job)) as third:
            assert [_shell(second), _shell(third)] == [job, job]
            second.type("echo $OAR_JOB_ID:$(wc -l < $OAR_NODEFILE); cat /proc/self/cgroup; echo end\r")
            second.until("echo end\r\n")
            text = second.until("end\r\n").decode()
            assert f"{job}:1\r\n" in text
            assert f"/{users[0]}_{job}\r\n" in text
            second.type("exit\r")
            assert second.ended()[0] == 0
            third.type("echo still $((40 + 2))\r")
            third.until("still 42")
            first.type("exit\r")
            assert first.ended()[0] == 0
            code, rest = third.ended()
            assert (code, b"Disconnected from OAR job" in rest) == (0, True)
    _until_over(shop, job)
    assert shop.story(job) == NORMAL


@pytest.mark.manual(204)
def test_the_shell_of_a_deploy_job_is_on_its_frontend(shop, users):
    client = Client(str(shop.state / "server.sock"))
    client.set_properties({"nodes": [shop.nodes[0]], "properties": {"deploy": "YES"}})
    code, out, err = piped(
        shop, users[0], "-I", "-t", "deploy", "-l", "nodes=1,walltime=1", stdin=b"cat /proc/self/cgroup $OAR_NODEFILE\n"
    )
    assert (code, err, "via the node 127.0.0.1" in out, f"\n{shop.nodes[0]}\n" in out) == (0, "", True, True)
    assert f"/127.0.0.1/{users[0]}_{job_of(out.encode())}" in out


def test_a_shell_in_a_batch_job_is_no_part_of_its_end(shop, users):
    code, out, err = piped(shop, users[0], "-l", CORE, "until [ -e go ]; do sleep 0.05; done; exit 4")
    job = job_of(out.encode())
    shop.until(lambda: shop.job(job).state is JobState.RUNNING)
    code, out, err = piped(shop, users[0], "-C", str(job), stdin=b"echo $OAR_JOB_ID; pwd; touch go; exit 9\n")
    assert (code, err, out.splitlines()[2:4]) == (0, "", [str(job), str(shop.home)])
    _until_over(shop, job)
    assert (shop.story(job), shop.job(job).exit_code) == (NORMAL, 4 << 8)


@pytest.mark.manual(4)
def test_a_job_that_cannot_be_entered_is_refused_with_its_state_or_owner(shop, users):
    over = job_of(piped(shop, users[0], "-l", CORE, "true")[1].encode())
    noop = job_of(piped(shop, users[0], "-l", CORE, "-t", "noop")[1].encode())
    runs = job_of(piped(shop, users[0], "-l", CORE, "sleep 600")[1].encode())
    _until_over(shop, over)
    shop.until(lambda: {shop.job(noop).state, shop.job(runs).state} == {JobState.RUNNING})
    expected = {
        (users[0], over): (20, f"oarsub: Job {over} is not running: its state is Terminated."),
        (users[0], 99999): (20, "oarsub: There is no job 99999."),
        (users[1], runs): (20, f"oarsub: Job {runs} belongs to {users[0]}, not to {users[1]}."),
        (users[0], noop): (17, f"oarsub: Job {noop} is of type noop: it runs nothing that could be entered."),
    }
    answers = {asked: piped(shop, asked[0], "-C", str(asked[1])) for asked in expected}
    assert {asked: (code, err.splitlines()[0]) for asked, (code, _, err) in answers.items()} == expected
    shop.delete(noop, runs)


@pytest.mark.manual(34)
def test_a_waiting_client_shows_the_start_and_ctrl_c_deletes_the_job(shop, users):
    with _occupied(shop, users[0]), terminal(shop, users[0], "-I", "-l", CORE) as waiting:
        job = job_of(waiting.until("Interactive mode: waiting...\r\n"))
        told = waiting.until(")\r\n").decode()
        assert re.search(r"^\[[0-9: -]{19}\] Start prediction: [0-9: -]{19} \(R=1,W=1:0:0,J=I", told)
        waiting.type("\x03")
        code, rest = waiting.ended()
        assert (code, f"Job {job} is deleted." in rest.decode()) == (130, True)
    assert (shop.story(job), "CANNOT_NOTIFY_OARSUB" in shop.events(job)) == (["Waiting", "Error"], False)


@pytest.mark.manual(134)
def test_a_client_that_vanishes_while_it_waits_takes_its_job_along(shop, users):
    with _occupied(shop, users[0]), terminal(shop, users[0], "-I", "-l", CORE) as waiting:
        job = job_of(waiting.until("Start prediction"))
        waiting.kill()
        _until_over(shop, job)
    assert (shop.story(job), "CANNOT_NOTIFY_OARSUB" in shop.events(job)) == (["Waiting", "Error"], True)


def test_the_shell_of_a_client_that_vanishes_is_hung_up(shop, users):
    with terminal(shop, users[0], "-I", "-l", CORE) as shell:
        job = _shell(shell)
        shell.kill()
        _until_over(shop, job)
    assert (shop.story(job), os.WTERMSIG(shop.job(job).exit_code)) == (NORMAL, signal.SIGHUP)


def test_the_client_says_that_the_walltime_was_over_or_who_deleted_the_job(shop, users):
    with terminal(shop, users[0], "-I", "-l", "/core=1,walltime=0:0:2") as short:
        job = _shell(short)
        with terminal(shop, users[0], "-I", "-l", CORE) as deleted:
            other = _shell(deleted)
            shop.delete(other, wait=False)
            code, rest = deleted.ended()
            assert (code, f"Job {other} ended: root asked for its end." in rest.decode()) == (11, True)
        code, rest = short.ended()
        assert (code, f"Job {job} ended: its walltime is over." in rest.decode()) == (11, True)


def test_shell_and_client_outlive_the_server_and_nothing_is_lost(own, users):
    with terminal(own, users[0], "-I", "-l", CORE) as shell:
        job = _shell(shell)
        shell.type("for i in $(seq 100000 120000); do echo $i; [ -e go ] || sleep 0.01; done; echo all $((1 + 1))\r")
        shell.until("100050")
        own.kill()
        before = shell.until("The server is away")
        (own.home / "go").touch()
        own.start()
        text = before + shell.until("all 2")
        numbers = re.findall(rb"(?m)^([0-9]{6})\r$", text)
        assert numbers == [b"%d" % number for number in range(100051, 120001)]
        shell.type("exit 5\r")
        assert shell.ended()[0] == 0
    _until_over(own, job)
    assert (own.story(job), own.job(job).exit_code) == (NORMAL, 5 << 8)


def test_what_a_shell_printed_last_waits_for_a_client_that_was_away(own, users):
    with terminal(own, users[0], "-I", "-l", CORE) as shell:
        job = _shell(shell)
        shell.type("until [ -e go ]; do sleep 0.01; done; seq 1000001 1005000; echo last words; exit 3\r")
        shell.until("exit 3\r\n")
        own.kill()
        shell.until("The server is away")
        (own.home / "go").touch()
        wait_until(lambda: any(own.state.glob(f"spool/**/undelivered/{job}.1.*")))
        own.start()
        code, rest = shell.ended()
        numbers = re.findall(rb"(?m)^(100[0-9]{4})\r$", rest)
        assert numbers == [b"%d" % number for number in range(1000001, 1005001)]
        assert (code, b"last words\r\n" in rest, b"Disconnected from OAR job %d." % job in rest) == (0, True, True)
    _until_over(own, job)
    assert own.job(job).exit_code == 3 << 8


def test_the_keys_that_the_user_set_on_the_terminal_hold_in_the_job(shop, users):
    with terminal(shop, users[0], "-I", "-l", CORE, modes={"VERASE": 8, "VINTR": 11, "IXON": 0}) as shell:
        _shell(shell)
        shell.type("stty -a\r")
        shown = shell.until(PROMPT).decode()
        assert ("erase = ^H;" in shown, "intr = ^K;" in shown, " -ixon " in shown) == (True, True, True)
        shell.type("sh -c 'echo wai''ting; exec sleep 600'\r")
        shell.until("waiting\r\n")
        shell.type("\x0b")
        shell.until(PROMPT)
        shell.type("exit\r")
        assert shell.ended()[0] == 0


def test_a_client_that_waits_outlives_a_restart_of_the_server(own, users):
    before = job_of(
        piped(own, users[0], "-l", "/core=2,walltime=1", "until [ -e go ]; do sleep 0.05; done")[1].encode()
    )
    with terminal(own, users[0], "-I", "-l", CORE) as waiting:
        job = job_of(waiting.until("Start prediction"))
        own.stop()
        own.serve()
        (own.home / "go").touch()
        _shell(waiting)
        waiting.type("exit\r")
        assert waiting.ended()[0] == 0
    _until_over(own, job)
    assert (own.story(before), own.story(job)) == (NORMAL, NORMAL)


def test_a_shell_goes_on_when_the_channel_of_its_node_breaks(own, users):
    with terminal(own, users[0], "-I", "-l", CORE) as shell:
        job = _shell(shell)
        shell.type("a=before\r")
        shell.until(PROMPT)
        for pid in own.node_programs():
            os.kill(pid, signal.SIGKILL)
        shell.until("The connection to")
        shell.type("echo $a and after\r")
        shell.until("before and after")
        shell.type("exit\r")
        assert shell.ended()[0] == 0
    _until_over(own, job)
    assert own.story(job) == NORMAL


@pytest.mark.component("sshd")
@pytest.mark.component("ip")
def test_a_shell_on_a_node_behind_ssh_is_the_same_and_outlives_a_cut_link(workspace, users):
    with cluster(workspace, users[0], ("", "")) as site:
        site.serve()
        with terminal(site, users[0], "-I", "-l", "/network_address=1,walltime=1") as shell:
            job = _shell(shell)
            machine = site.machines[site.node_of(job)]
            shell.resize(33, 99)
            shell.type("echo $(hostname) $(stty size) $OAR_JOB_ID\r")
            shell.until(f"{machine.name} 33 99 {job}\r\n")
            assert piped(site, users[0], "-C", str(job), stdin=b"hostname\n")[1].splitlines()[2] == machine.name
            machine.link("down")
            shell.until("The connection to", seconds=60)
            machine.link("up")
            shell.type("echo back $((40 + 2))\r")
            shell.until("back 42\r\n", seconds=60)
            shell.type("exit\r")
            assert shell.ended()[0] == 0
        _until_over(site, job)
        assert site.story(job) == NORMAL


def test_what_belongs_to_one_user_is_shown_to_no_other(shop, users):
    with terminal(shop, users[0], "-I", "-l", CORE) as shell:
        _shell(shell)
        log = shop.log()
        shell.type("exit\r")
        assert shell.ended()[0] == 0
    # The name of a session is all that a client needs to join it again.
    assert re.search(r"[0-9a-f]{32}", "\n".join(line for line in log.splitlines() if "session" in line)) is None
    wait_until(lambda: "session left" in shop.log())


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_jobs_whose_clients_died_with_the_server_end_after_its_return(own, users):
    with (
        terminal(own, users[0], "-I", "-l", CORE) as first,
        terminal(own, users[0], "-I", "-l", "/core=2,walltime=1") as second,
    ):
        runs = _shell(first)
        waits = job_of(second.until("Start prediction"))
        own.kill()
        first.kill()
        second.kill()
    own.serve()
    own.until(own.all_over, seconds=120)
    assert (own.story(runs), os.WTERMSIG(own.job(runs).exit_code)) == (NORMAL, signal.SIGHUP)
    assert (own.story(waits), "CANNOT_NOTIFY_OARSUB" in own.events(waits)) == (["Waiting", "Error"], True)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_an_interactive_job_that_nobody_enters_ends_by_itself(own, users):
    with seen_as(users[0]):
        body = {"interactive": True, "resources": [CORE], "directory": str(own.home)}
        job = Client(str(own.state / "server.sock")).submit(body)["job_ids"][0]
    own.until(own.all_over, seconds=120)
    assert (own.story(job)[-1], "CANNOT_NOTIFY_OARSUB" in own.events(job)) == ("Error", True)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_every_key_and_every_line_arrives_once_through_a_dozen_kills(own, users):
    with terminal(own, users[0], "-I", "-l", CORE) as shell:
        job = _shell(shell)
        shell.type("stty -echo; while read x; do echo got $x; done\r")
        shell.until("done\r\n")
        for number in range(12):
            shell.type("".join(f"{number}.{line}\r" for line in range(200)))
            if number % 2:
                own.kill()
                own.serve()
            else:
                for pid in own.node_programs():
                    os.kill(pid, signal.SIGKILL)
            text = shell.until(f"got {number}.199\r\n", seconds=60)
            assert re.findall(rb"got ([0-9.]+)", text) == [b"%d.%d" % (number, line) for line in range(200)]
        shell.type("\x04exit\r")
        assert shell.ended()[0] == 0
    _until_over(own, job)
    assert own.story(job) == NORMAL
