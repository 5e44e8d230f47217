"""A thousand nodes post samples to a server that runs jobs meanwhile, and whose collector is killed each minute."""

import asyncio
import os
import pwd
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median

import pytest

from bench.collect_load import cpu_of, make_nodes, resident_bytes, turns
from oarlock.client import Client
from oarlock.measure.collect.files import hdf5
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.model.job import FINAL, JobState
from oarlock.store.queries.job import agent_jobs, jobs
from tests.bed import needs_root
from tests.e2e.agent_fleet import CLUSTER, AgentFleet, VirtualAgent
from tests.e2e.instance import SOURCE, Instance, free_port, instance, own_address
from tests.server.collecting.test_collector_kills import FOREVER, booked_energy, kept_instants, logged_energy

SECONDS = float(os.environ.get("COLLECTOR_SOAK_SECONDS", "3600"))
NODES = int(os.environ.get("COLLECTOR_SOAK_NODES", "1000"))
KILL_SECONDS, ARRAY_SECONDS = 60.0, 10.0
SHORTEST = 11 + 2  # samples of a job that may have no file, some of them dropped
ENDING = 20  # jobs of the other cluster that end between two kills, each followed by another
ARRAY = 30  # jobs of our own that are submitted at once
COMMAND = "sleep 0.$((OAR_ARRAY_INDEX % 7)); echo $OAR_JOB_ID >> lines"

pytestmark = [needs_root, pytest.mark.soak, pytest.mark.timeout(SECONDS + 1800)]


class Soak:
    """The server, the agents, and what is measured."""

    def __init__(self, site: Instance, address: tuple[str, int]) -> None:
        self.site, self.places = site, SamplePlaces(site.state / "samples")
        self.client = Client(str(site.state / "server.sock"))
        agents = [VirtualAgent(node, str(self._token(node.name))) for node in make_nodes(NODES)]
        self.fleet = AgentFleet(address, agents)
        self._next_job = 1 + max(job for agent in agents for job in agent.node.jobs)
        self._dice = random.Random("soak")
        self.arrays: list[float] = []  # seconds from the submission of an array to the end of its last job
        self.submitted: list[int] = []
        self.sizes: list[int] = []  # memory of the collector before each kill
        self.server_sizes: list[int] = []
        self.spent = 0.0  # CPU seconds of all collectors
        self._sending: set[asyncio.Task[None]] = set()

    def _token(self, node: str) -> object:
        return self.client._change("POST", "/tokens", {"name": node, "node": node, "cluster": CLUSTER})["token"]

    def collector(self) -> int:
        """The collector's process; 0 while there is none."""
        server = self.site.process.pid
        for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split():
            try:
                if b"collecting" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
            except OSError:
                continue
        return 0

    def measure(self, pid: int) -> None:
        self.sizes.append(resident_bytes(pid))
        self.server_sizes.append(resident_bytes(self.site.process.pid))
        self.spent += cpu_of(pid)

    def kill(self) -> bool:
        """Kill the collector, and let jobs of the other cluster end and others begin; False if there was none."""
        pid = self.collector()
        if not pid:
            return False
        self.measure(pid)
        os.kill(pid, signal.SIGKILL)
        for agent in self._dice.sample(self.fleet.agents, ENDING):
            agent.node.jobs = (*agent.node.jobs[1:], self._next_job)
            self._next_job += 1
        return True

    def run_array(self) -> None:
        """Submit an array of jobs of our own and wait for its end. In a thread."""
        begin = time.monotonic()
        ids = self._oarsub()
        self.submitted += ids
        while not self._are_over(ids):
            time.sleep(0.2)
        self.arrays.append(time.monotonic() - begin)

    def _oarsub(self) -> list[int]:
        account = pwd.getpwnam(self.site.user)
        command = ["oarsub", "-l", "/core=1,walltime=0:10:0", "--array", str(ARRAY), COMMAND]
        output = subprocess.run(
            [Path(sys.executable).with_name(command[0]), *command[1:]],
            env={"OARLOCK_SERVER": str(self.site.state / "server.sock"), "PYTHONPATH": str(SOURCE)},
            cwd=self.site.home, user=account.pw_uid, group=account.pw_gid, extra_groups=[],
            capture_output=True, text=True, check=True, timeout=120,
        ).stdout  # fmt: skip
        ids = [int(number) for number in re.findall(r"OAR_JOB_ID=(\d+)", output)]
        assert len(ids) == ARRAY, output
        return ids

    def _are_over(self, ids: list[int]) -> bool:
        with self.site.database.read() as tx:
            return all(job.state in FINAL for job in jobs.get_many(tx, ids))

    async def send(self, seconds: float) -> float:
        """Post the samples of all nodes for a time, with kills and arrays; return the seconds that it took."""
        begun, next_kill, next_array = time.monotonic(), KILL_SECONDS, 0.0
        running: list[asyncio.Task[None]] = []
        by_name = {agent.node.name: agent for agent in self.fleet.agents}
        for at, group in turns([agent.node for agent in self.fleet.agents], seconds):
            for node in group:
                self._post(by_name[node.name])
            if at >= next_kill and self.kill():
                next_kill += KILL_SECONDS
            if next_array <= at < seconds - ARRAY_SECONDS:
                next_array += ARRAY_SECONDS
                running.append(asyncio.create_task(asyncio.to_thread(self.run_array)))
            await asyncio.sleep(max(0.0, begun + at + 0.1 - time.monotonic()))
        await asyncio.gather(*running, *self._sending)
        return time.monotonic() - begun

    def _post(self, agent: VirtualAgent) -> None:
        task = asyncio.create_task(self.fleet.post(agent))
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        task.result()

    async def end_jobs(self) -> None:
        """Let the nodes send without jobs until all jobs of theirs are files."""
        end = time.monotonic() + 900
        for agent in self.fleet.agents:
            agent.node.jobs = ()
        while self.places.logged_jobs():
            assert time.monotonic() < end, self.site.log()[-2000:]
            for agent in self.fleet.agents:
                await self.fleet.post(agent)
            await asyncio.sleep(5)

    # What is kept, compared with what was sent.

    def dropped(self) -> int:
        """How many samples the server counts as dropped."""
        page = self.client._download("/metrics").decode()
        [figure] = re.findall(r"^oarlock_collector_dropped_total(?:\{.*\})? (\S+)$", page, re.MULTILINE)
        return int(float(figure))

    def check_samples(self) -> Counter[str]:
        """Compare the rows of nodes and jobs with what was sent; what was logged twice or never sent fails."""
        counts: Counter[str] = Counter()
        with self.site.database.read() as tx:
            numbers = {int(job.job): job.number for job in agent_jobs.listed(
                tx, cluster=CLUSTER, user=None, running=False, most=1_000_000)}  # fmt: skip
        for agent in self.fleet.agents:
            kept = kept_instants(self.places, agent.node)
            assert len(set(kept)) == len(kept)
            assert set(kept) <= set(agent.node.sent)
            counts["sent"] += len(agent.node.sent)
            counts["missing"] += len(set(agent.node.sent) - set(kept))
            for job, sent in agent.spans.items():
                counts += self._check_job(numbers[job], sent)
        return counts

    def _check_job(self, number: int, sent: list[int]) -> Counter[str]:
        path = self.places.kept(number)
        if path is None:
            assert len(sent) <= SHORTEST, (number, len(sent))
            return Counter(short=1)
        [track] = hdf5.read_tracks(path, lambda name: name == "cpu_seconds_total", 0, FOREVER)
        times = list(track.times)
        assert times == sorted(set(times))
        assert set(times) <= set(sent)
        return Counter(files=1, rows=len(sent), missing_rows=len(set(sent) - set(times)))

    def check_jobs(self) -> None:
        """Every job of our own ended well, and ran once."""
        with self.site.database.read() as tx:
            ends = Counter((job.state, job.exit_code) for job in jobs.get_many(tx, self.submitted))
        assert ends == {(JobState.TERMINATED, 0): len(self.submitted)}
        assert sorted(map(int, (self.site.home / "lines").read_text().split())) == sorted(self.submitted)

    async def check_energy(self) -> None:
        """What is booked is, for each node and day, what the logs say from their beginnings."""
        nodes, now = [agent.node for agent in self.fleet.agents], time.time()
        expected = await asyncio.to_thread(logged_energy, self.places, nodes, now)
        end = time.monotonic() + 180
        while True:
            booked = {key: value for key, value in booked_energy(self.site.database).items() if key in expected}
            if booked == expected:
                return
            assert time.monotonic() < end
            await asyncio.sleep(2)


def test_a_thousand_nodes_send_for_an_hour_while_jobs_run(workspace, two_users):
    """COLLECTOR_SOAK_SECONDS says for how long, COLLECTOR_SOAK_NODES from how many nodes."""
    host, port = own_address(), free_port()
    more = {"JOB_MIN_UID": 1, "SERVER_HOSTNAME": host, "SERVER_PORT": port}
    with instance(workspace, two_users[0], f"k{os.getpid()}n", nodes=4, cores=2, more=more) as site:
        site.serve()
        asyncio.run(soak(Soak(site, (host, port))))


async def soak(story: Soak) -> None:
    await story.fleet.open()
    server = story.site.process.pid
    before, own = cpu_of(server), time.process_time()
    elapsed = await story.send(SECONDS)
    spent, own = cpu_of(server) - before, time.process_time() - own
    story.measure(story.collector())
    sizes, servers = ([round(size / 1e6) for size in some] for some in (story.sizes, story.server_sizes))
    print(
        f"\n{elapsed:.0f} s, {len(sizes) - 1} kills; of a core: collector {story.spent / elapsed:.1%}, server "
        f"{spent / elapsed:.1%}, this test {own / elapsed:.1%}\n{len(story.submitted)} jobs in arrays of {ARRAY}: "
        f"median {median(story.arrays):.1f} s, longest {max(story.arrays):.1f} s from submission to end of all\n"
        f"MB of the collector before each kill: {sizes}\nMB of the server: {servers}", flush=True,
    )  # fmt: skip
    story.check_jobs()
    await story.end_jobs()
    await story.check_energy()
    counts, dropped = story.check_samples(), story.dropped()
    await story.fleet.close()
    print(f"{dict(counts)}; {dropped} dropped, {story.fleet.again} requests again", flush=True)
    assert counts["missing"] <= dropped  # whatever was told to be logged is there
    assert counts["missing_rows"] <= 2 * dropped
    assert max(story.sizes) < 1.3 * story.sizes[0] + 20e6
