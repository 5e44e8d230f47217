import itertools
import logging
import os
import re
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.measure import options
from oarlock.measure.agent import Agent, next_sample_time, source_settings, started
from oarlock.measure.options import AgentOptions
from oarlock.model.errors import ConfigRefused
from oarlock.node.sources.files import Hierarchy
from oarlock.node.sources.host.machine import local_mounts
from oarlock.node.sources.job import perf
from tests.measure.real import free_port
from tests.monitoring import needs_cgroups, real_groups, recorded
from tests.waiting import wait_until

FILES = {"cpuacct/oar/ada_7/cpuacct.usage": "2000000000\n", "memory/oar/ada_7/memory.usage_in_bytes": "4096\n"}


@pytest.fixture
def trees(tmp_path):
    recorded(tmp_path, FILES)
    return [Hierarchy(str(tmp_path / name), (name,)) for name in ("cpuacct", "memory")]


@pytest.fixture
def agent_of(trees):
    """Make agents of the recorded job, closed at the end."""
    agents = []

    def make(**asked):
        chosen = {
            "sources": ("cpu", "memory"),
            "layout": "oar2",
            **{key: asked.pop(key) for key in GIVEN & asked.keys()},
        }
        agents.append(Agent(options.make_options(chosen), hierarchies=lambda: trees, **asked))
        return agents[-1]

    yield make
    for agent in agents:
        agent.close()


GIVEN = {"period", "names", "sources", "layout", "jobs_only", "cluster"}


def page(agent):
    return b"".join(agent.page.pieces).decode()


@given(st.floats(0, 2e9), st.floats(0.1, 3600))
def test_the_next_turn_is_after_now_and_no_further_than_a_period(now, period):
    turn = next_sample_time(now, period)
    assert now < turn <= now + period * 1.001 + 1e-6
    assert abs(turn / period - round(turn / period)) < 1e-3


def test_nodes_sample_in_step():
    assert [next_sample_time(now, 5.0) for now in (1000.0, 1001.3, 1004.999)] == [1005.0] * 3


def test_a_sample_is_on_the_page_under_all_names(agent_of):
    agent = agent_of(names="oarlock slurm", cluster="alpha")
    agent.sample()
    whose = 'user="ada",account=""'
    assert f'oarlock_job_cpu_seconds_total{{job_id="7",{whose},cluster="alpha"}} 2.0\n' in page(agent)
    assert f'slurm_job_memory_usage{{{whose},slurmjobid="7",cluster="alpha"}} 4096\n' in page(agent)
    assert 'oarlock_node_jobs{cluster="alpha"} 1\n' in page(agent)
    assert re.search(r'oarlock_agent_info\{version="[^"]+",cluster="alpha"\} 1\n', page(agent))


def test_a_job_that_ends_is_not_on_the_next_page(agent_of, tmp_path):
    agent = agent_of()
    agent.sample()
    for file in FILES:
        (tmp_path / file).unlink()
        (tmp_path / file).parent.rmdir()
    agent.sample()
    assert "ada" not in page(agent)
    assert "oarlock_node_jobs 0\n" in page(agent)


def test_an_agent_runs_until_it_is_stopped_and_samples_on_time(agent_of):
    """A clock that jumps to each turn shows at which instants samples were taken."""
    taken = []

    class Stop:
        name = "stop"

        def take(self, batch, naming):
            taken.append(batch.at)
            if len(taken) == 4:
                agent.stop()

        def close(self):
            pass

    ticks = itertools.count(1000.0, 0.05)
    agent = agent_of(period="0.5s", clock=lambda: next(ticks), outputs=[Stop()])
    agent.run()
    assert len(taken) == 4
    assert all(0 <= at % 0.5 <= 0.3 for at in taken[1:])


class FailsOnce:
    """An output with a mistake in it, which shows with the first sample."""

    name = "mistaken"

    def __init__(self):
        self.mistakes = [RuntimeError("nobody thought of this")]

    def take(self, batch, naming):
        if self.mistakes:
            raise self.mistakes.pop()

    def close(self):
        pass


def test_a_sample_that_fails_is_counted_and_the_next_is_taken(agent_of, caplog):
    agent = agent_of(period="0.1s", outputs=[FailsOnce()])
    with running(agent):
        wait_until(lambda: agent.page and "oarlock_agent_failed_samples_total 1\n" in page(agent), "the next sample")
    assert "a sample failed" in caplog.text


class running:  # noqa: N801  reads as a word of the test
    """Run an agent in a thread meanwhile."""

    def __init__(self, agent):
        self.agent, self.thread = agent, threading.Thread(target=agent.run)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.agent.stop()
        self.thread.join()


class Broken:
    name = "broken"

    def take(self, batch, naming):
        raise OSError("no space left")

    def close(self):
        pass


def test_an_output_that_fails_costs_the_others_nothing_and_is_said_once(agent_of, caplog):
    agent = agent_of(outputs=[Broken()])
    for _ in range(3):
        agent.sample()
    assert 'oarlock_agent_dropped_batches_total{output="broken"} 2\n' in page(agent)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_pages_that_a_push_gateway_did_not_take_are_counted():
    options = AgentOptions(listen="none", control="none", push=f"http://127.0.0.1:{free_port()}", sources=())
    with started(options) as agent:
        agent.sample()
        wait_until(lambda: agent.failures["push"]() == 1, "the failure")
        agent.sample()
        assert 'oarlock_agent_dropped_batches_total{output="push"} 1\n' in page(agent)


def test_period_sources_and_names_change_while_it_runs(agent_of):
    agent = agent_of(period="1h")
    with running(agent):
        wait_until(lambda: agent.page is not None, "the first page")
        assert agent.change({}) == agent.options
        now = agent.change({"period": "0.1s", "disable": ["memory"], "enable": ["machine"], "names": "jobs oarlock"})
        assert (now.period, now.sources, now.names) == (0.1, ("cpu", "machine"), ("jobs", "oarlock"))
        wait_until(lambda: "jobs_cpu_time_total" in page(agent) and "node_load" in page(agent), "the new names")
        assert "memory_usage" not in page(agent)
        agent.change({"disable": ["machine"]})
        wait_until(lambda: "node_load" not in page(agent), "the node's source to go")


def test_events_are_counted_anew_when_their_list_changes(agent_of):
    agent = agent_of(sources=("cpu", "perf"))
    with running(agent):
        now = agent.change({"perf_events": "cache_ll,emulation_faults"})
        assert now.perf_events == ("cache_ll", "emulation_faults")
        assert agent._sampler._job_sources["perf"].events == ["cache_ll", "emulation_faults"]


def test_a_refused_change_of_options_changes_nothing(agent_of):
    agent = agent_of()
    before = agent.options
    with running(agent):
        for change, sentence in [({"listen": "0.0.0.0:1"}, "`listen` is fixed"), ({"period": "0"}, "cannot be kept"),
                               ({"enable": ["moon"]}, "no source `moon`")]:  # fmt: skip
            with pytest.raises(ConfigRefused, match=sentence):
                agent.change(change)
    assert agent.options == before


def end_job(tmp_path, name):
    for tree in ("cpuacct", "memory"):
        folder = tmp_path / tree / "oar" / name
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


def begin_job(tmp_path, name):
    recorded(tmp_path, {f"cpuacct/oar/{name}/cpuacct.usage": "1\n", f"memory/oar/{name}/memory.usage_in_bytes": "1\n"})


def change(agent, *changes):
    """Run an agent for as long as it takes to change it."""
    with running(agent):
        for wanted in changes:
            agent.change(wanted)


def test_a_change_is_over_with_the_jobs_that_were_there(agent_of, tmp_path):
    agent = agent_of(period="1h")
    agent.sample()
    change(agent, {"period": "2", "disable": ["memory"]})
    assert agent.status == {"until_jobs": ["7"]}
    begin_job(tmp_path, "bob_8")
    agent.sample()
    assert (agent.options.period, agent.options.sources) == (2, ("cpu",))
    end_job(tmp_path, "ada_7")
    agent.sample()
    assert (agent.options.period, agent.options.sources) == (3600, ("cpu", "memory"))
    assert agent.status == {"until_jobs": None}
    agent.sample()
    assert "memory_usage" in page(agent)


def test_a_change_on_an_empty_node_is_for_the_jobs_that_come_next(agent_of, tmp_path):
    end_job(tmp_path, "ada_7")
    agent = agent_of(period="1h")
    agent.sample()
    change(agent, {"period": "2"})
    agent.sample()
    assert (agent.options.period, agent.status) == (2, {"until_jobs": []})
    begin_job(tmp_path, "bob_8")
    agent.sample()
    assert agent.status == {"until_jobs": ["8"]}
    end_job(tmp_path, "bob_8")
    agent.sample()
    assert agent.options.period == 3600


def test_a_change_that_is_kept_outlives_the_jobs(agent_of, tmp_path):
    agent = agent_of(period="1h")
    agent.sample()
    change(agent, {"period": "2"}, {"disable": ["memory"], "keep": True})
    end_job(tmp_path, "ada_7")
    agent.sample()
    assert (agent.options.period, agent.options.sources) == (3600, ("cpu",))


def test_what_is_in_force_can_be_kept_afterwards(agent_of, tmp_path):
    agent = agent_of(period="1h")
    agent.sample()
    change(agent, {"period": "3"}, {"keep": True})
    assert agent.status == {"until_jobs": None}
    end_job(tmp_path, "ada_7")
    agent.sample()
    assert agent.options.period == 3


def test_a_refused_change_that_is_to_be_kept_changes_nothing_either(agent_of):
    agent = agent_of(period="1h")
    agent.sample()
    with pytest.raises(ConfigRefused, match="no source `moon`"):
        change(agent, {"enable": ["moon"], "keep": True})
    assert (agent.options.period, agent.status) == (3600, {"until_jobs": None})


def test_as_colmet_no_more_than_five_events_are_counted_and_it_is_said(agent_of, caplog):
    events = ("instructions", "cpu_cycles", "cache_misses", "page_faults", "task_clock", "cpu_clock", "cache_ll")
    chosen = options.make_options({"sources": ("cpu", "perf"), "perf_events": events, "colmet": True})
    assert source_settings(chosen).perf_events == events[:5]
    assert [record.left_out for record in caplog.records] == ["cpu_clock, cache_ll"]
    assert source_settings(options.make_options({"perf_events": events})).perf_events == events


def test_the_portal_finds_this_node_under_the_names_of_node_exporter(agent_of):
    agent = agent_of(names=("node",), sources=("machine", "disk", "filesystem", "network"))
    wait_until(lambda: agent.sample() and "node_filesystem" in page(agent), "the file systems")
    text = page(agent)
    idle = re.findall(r'^node_cpu_seconds_total\{cpu="\d+",mode="idle"\} ', text, re.MULTILINE)
    assert len(idle) == len(perf.online_cpus())
    assert 'mode="guest"' not in text, "it is inside `user` already"
    [mount, *_] = local_mounts(Path("/proc/self/mounts").read_text())
    size = os.statvfs(mount.mountpoint)
    labels = f'device="{mount.device}",mountpoint="{mount.mountpoint}",fstype="{mount.fstype}"'
    assert f"node_filesystem_size_bytes{{{labels}}} {size.f_blocks * size.f_frsize}\n" in text
    disks = {line.split()[2]: int(line.split()[5]) * 512 for line in Path("/proc/diskstats").read_text().splitlines()}
    told = dict(re.findall(r'^node_disk_read_bytes_total\{device="(\w+)"\} (\d+)$', text, re.MULTILINE))
    assert told
    assert all(int(count) <= disks[device] for device, count in told.items())
    names = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    assert all(name.startswith("node_") for name in names - {"oarlock_node_job_info"})


def test_other_cgroups_are_measured_when_asked_for(agent_of, tmp_path):
    recorded(tmp_path, {"cpuacct/system.slice/cpuacct.usage": "1000000000\n"})
    agent = agent_of(jobs_only=False, layout="auto")
    agent.sample()
    assert 'oarlock_cgroup_cpu_seconds_total{cgroup="system.slice"} 1.0\n' in page(agent)
    assert "oarlock_node_jobs 1\n" in page(agent)


def test_a_management_controller_is_named_in_a_file_that_keeps_its_secret(tmp_path):
    file = tmp_path / "redfish.toml"
    file.touch(mode=0o600)
    file.write_text('url = "https://bmc.example"\nuser = "ada"\npassword = "pw"\n')
    assert source_settings(options.make_options({"redfish": str(file)})).redfish is not None
    for text in ("url =", "uri = 'x'", "url = 'bmc'\nuser = ''\npassword = ''"):
        file.write_text(text)
        with pytest.raises(ConfigRefused, match="does not say how to reach"):
            source_settings(options.make_options({"redfish": str(file)}))


@pytest.fixture
def real_agent():
    """Make an agent of real cgroups, and put sleeping processes into them."""
    with real_groups() as groups, ExitStack() as stack:
        agent = Agent(options.make_options({"layout": "slurm", "sources": ("cpu", "processes"), "control": "none"}),
                      hierarchies=lambda: groups.hierarchies)  # fmt: skip
        stack.callback(agent.close)

        def sleep_in(path, **environment):
            made = groups.make(path)
            sleeper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], env=environment)
            stack.callback(sleeper.wait)
            stack.callback(sleeper.kill)
            groups.join(made, sleeper.pid)

        yield agent, sleep_in


@needs_cgroups
def test_without_a_look_up_the_account_is_that_of_the_environment(real_agent):
    agent, sleep_in = real_agent
    sleep_in("slurm/uid_4000000/job_7/step_batch", SLURM_JOB_ID="7", SLURM_JOB_ACCOUNT="physics")
    agent.sample()
    whose = 'user="4000000",account="physics",slurmjobid="7"'
    assert f"slurm_job_process_count{{{whose}}} " in page(agent)


@needs_cgroups
def test_a_job_whose_processes_say_nothing_is_measured_all_the_same(real_agent):
    agent, sleep_in = real_agent
    sleep_in("slurm/uid_4000000/job_7/step_batch")
    agent.sample()
    assert 'slurm_job_process_count{user="4000000",account="",slurmjobid="7"} ' in page(agent)
    sleep_in("slurm/uid_4000000/job_7/step_0", SLURM_JOB_ID="7", SLURM_JOB_ACCOUNT="physics")
    agent.sample()
    assert 'slurm_job_process_count{user="4000000",account="physics",slurmjobid="7"} ' in page(agent)
    assert 'account="",' not in page(agent)


@needs_cgroups
def test_a_slurm_job_named_by_its_sluid_is_told_by_its_number(real_agent):
    agent, sleep_in = real_agent
    sleep_in("system.slice/slurmstepd.scope/s0123456789ABC/step_0", SLURM_JOB_ID="42", SLURM_JOB_ACCOUNT="physics",
             SLURM_JOB_SLUID="s0123456789ABC")  # fmt: skip
    batch = agent.sample()
    assert 'account="physics",slurmjobid="42"' in page(agent)
    assert (batch.involved_jobs, "s0123456789ABC" in page(agent)) == ([42], False)
