"""Nodes behind a real sshd, each with its own network, host name, processes and boot id."""

import asyncio
import contextlib
import os
import signal

import pytest

from oarlock.model.errors import NodeRefused, NodeUnreachable
from oarlock.node.wire.messages import EXITED, FAILED, KILLED, LOST, OTHER, REBOOTED, SEEN, SiteHooks
from oarlock.server.nodes import ConnectionLost, Timeouts, ssh
from tests import bed
from tests.bed import needs_root, open_node, run_async, script

pytestmark = [needs_root, pytest.mark.component("sshd"), pytest.mark.component("ip")]

QUICK = Timeouts(connect=8.0, answer=8.0, first_retry=0.1, last_retry=0.5, ping=2.0)


@pytest.fixture
def rack(workspace):
    with bed.rack(workspace) as made:
        yield made


@contextlib.asynccontextmanager
async def reached(machine, user, **more):
    """Reach a machine by ssh; its spool is its own."""
    async with open_node(machine.home, user, name=machine.name, way=machine.way(), patience=QUICK, **more) as post:
        yield post


def test_a_node_name_is_never_an_option_of_ssh():
    way = ssh("-oProxyCommand=evil", command=("ssh", "-p", "6667"), python="/opt/my python")
    assert way.command[:3] == ("ssh", "-p", "6667")
    assert way.command[-7:] == ("--", "-oProxyCommand=evil", "exec", "'/opt/my python'", "-I", "-S", "-c")
    assert "BatchMode=yes" in way.command
    assert way.arguments("import os")[-1] == "'import os'"


@pytest.mark.manual(176, 186)
@run_async
async def test_a_job_runs_on_a_node_that_has_only_sshd_and_python(rack, two_users):
    machine = rack.machine()
    async with reached(machine, two_users[0]) as post:
        report = await post.run(1, "id -un; hostname; exit 2")
        assert (report.status, post.out(1)) == (2 << 8, f"{two_users[0]}\n{machine.name}\n")
        assert report.boot == (machine.home / "boot_id").read_text().strip()


@run_async
async def test_noise_before_our_first_word_does_no_harm(rack, two_users):
    (rack.home / "banner").write_text("Welcome!\n\x01OARLOCK 0000 30b0000\n")
    noise = "head -c 100000 /dev/urandom; printf '\\n\\001OARLOCK 0000 30b0000\\n'; timeout 0.2 cat > /dev/null"
    (rack.home / "force").write_text(f'#!/bin/sh\n{noise}\neval "$SSH_ORIGINAL_COMMAND"\n')
    (rack.home / "force").chmod(0o755)
    machine = rack.machine(sshd=f"Banner {rack.home}/banner\nForceCommand {rack.home}/force")
    async with reached(machine, two_users[0]) as post:
        assert (await post.run(1, "echo fine")).status == 0
        assert post.out(1) == "fine\n"


@run_async
async def test_a_shell_that_never_comes_to_our_line_is_given_up_in_time(rack, two_users):
    machine = rack.machine(sshd="ForceCommand sleep 600")
    with pytest.raises(NodeUnreachable, match="no answer within 8 s"):
        async with reached(machine, two_users[0]):
            pass


@run_async
async def test_a_node_that_talks_nonsense_without_end_is_given_up_at_once(rack, two_users):
    machine = rack.machine(sshd="ForceCommand head -c 3000000 /dev/urandom; sleep 600")
    with pytest.raises(NodeUnreachable, match="bytes came, but not our marker"):
        async with asyncio.timeout(20), reached(machine, two_users[0]):
            pass


@run_async
async def test_a_cut_link_loses_nothing_and_runs_nothing_twice(rack, two_users):
    machine = rack.machine()
    async with reached(machine, two_users[0]) as post:
        short, long = post.launch(1, "echo ran; sleep 1"), post.launch(2, "echo ran; sleep 600")
        for launch in (short, long):
            await post.node.launch(launch)
        await post.started(1)
        await post.started(2)
        machine.link("down")
        mark = len(post.events)
        await post.until(lambda event: isinstance(event, ConnectionLost))
        with pytest.raises(NodeUnreachable):
            await post.node.ping()
        machine.link("up")
        await post.back(after=mark)
        assert ((await post.report(1)).outcome, post.out(1)) == (EXITED, "ran\n")
        with pytest.raises(NodeRefused) as again:
            await post.node.launch(long)
        assert again.value.word == SEEN
        await post.node.kill(2, 1)
        assert ((await post.report(2)).outcome, post.out(2)) == (KILLED, "ran\n")


@run_async
async def test_a_node_whose_sshd_hangs_is_given_up_in_time_and_heals(rack, two_users):
    machine = rack.machine()
    os.kill(machine.listener(), signal.SIGSTOP)
    with pytest.raises(NodeUnreachable, match="timed out"):
        async with reached(machine, two_users[0]):
            pass
    os.kill(machine.listener(), signal.SIGCONT)
    async with reached(machine, two_users[0]) as post:
        assert (await post.run(1, "true")).status == 0


@run_async
async def test_after_a_power_cut_a_node_has_another_boot_id(rack, two_users):
    machine = rack.machine()
    async with reached(machine, two_users[0]) as post:
        launch = post.launch(1, "echo ran; sleep 600")
        await post.node.launch(launch)
        await post.printed(1, "ran")
        mark = len(post.events)
        machine.cut_power()
        await post.until(lambda event: isinstance(event, ConnectionLost))
        machine.boot()
        back = await post.back(after=mark)
        report = await post.report(1)
        assert (report.outcome, report.status, report.says) == (LOST, None, "the node was started again while it ran")
        assert (back.hello.boot == post.boot, report.boot) == (False, back.hello.boot)
        with pytest.raises(NodeRefused) as refusal:
            await post.node.launch(post.launch(2, "echo ran"))
        assert (refusal.value.word, post.out(1)) == (REBOOTED, "ran\n")


@run_async
async def test_a_host_key_that_changed_is_never_accepted(rack, two_users):
    machine = rack.machine()
    machine.cut_power()
    machine.new_host_key()
    machine.boot()
    with pytest.raises(NodeUnreachable, match="Host key verification failed"):
        async with reached(machine, two_users[0]):
            pass


@run_async
async def test_jobs_outlive_the_end_of_ssh_and_of_the_server(rack, two_users):
    machine = rack.machine()
    async with reached(machine, two_users[0]) as post:
        launches = [post.launch(job, "echo ran; sleep 0.5; exit 4") for job in range(1, 6)]
        for launch in launches:
            await post.node.launch(launch)
        await asyncio.gather(*(post.started(launch.job) for launch in launches))
        os.killpg(post.node._channel._process.pid, signal.SIGKILL)
        reports = await asyncio.gather(*(post.report(launch.job) for launch in launches))
        assert [report.status for report in reports] == [4 << 8] * 5
        assert [post.out(launch.job) for launch in launches] == ["ran\n"] * 5


@run_async
async def test_a_prologue_that_hangs_holds_up_only_its_own_job(rack, two_users, site):
    hooks = SiteHooks(prologue=script(site / "hang", "sleep 600"), timeout=1)
    machine = rack.machine()
    async with reached(machine, two_users[0]) as post:
        await post.node.launch(post.launch(1, "echo ran", hooks=hooks))
        assert (await post.run(2, "true")).outcome == EXITED
        report = await post.report(1)
        assert (report.outcome, report.event, "did not end within 1 s" in report.says) == (
            FAILED,
            "PROLOGUE_ERROR",
            True,
        )


@pytest.mark.manual(44)
@run_async
async def test_a_job_on_two_machines_has_a_place_on_both(rack, two_users):
    first, second = rack.machine(), rack.machine()
    async with reached(first, two_users[0]) as one, reached(second, two_users[0]) as two:
        launch = one.launch(9, "cat $OAR_NODEFILE", nodes=(first.name, second.name))
        await two.node.launch(launch._replace(role=OTHER, command="", boot=two.boot))
        await two.started(9)
        await one.node.launch(launch)
        assert (await one.report(9)).status == 0
        await two.node.end(9, launch.attempt)
        await two.report(9)
        assert one.out(9) == f"{first.name}\n{second.name}\n"
