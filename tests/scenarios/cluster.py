"""A simulated cluster for scenarios, with short methods for what users do and see."""

from typing import Any

from oarlock.config import Config
from oarlock.job.run import kill, suspend
from oarlock.job.run.effects import ActionResult
from oarlock.lang import request as requests
from oarlock.model.errors import NodeUnreachable
from oarlock.model.job import Job, JobState
from oarlock.simulate import invariants
from oarlock.simulate.cluster import BEGIN, SimulatedCluster, SimulationDatabase
from oarlock.store.queries.cluster import events, resources
from oarlock.store.queries.job import attempts, jobs, new_jobs
from oarlock.store.queries.planning import plans
from oarlock.store.queries.usage import accounting
from tests.clusters import add_nodes


class Cluster(SimulatedCluster):
    """Nodes `node1`…, two cores each unless said otherwise."""

    def __init__(self, database: SimulationDatabase, *, nodes: int = 2, cores: int = 2, **settings: Any) -> None:
        names = [f"node{n}" for n in range(1, nodes + 1)]
        super().__init__(database, names, Config(**settings), written=self._promises_never_overlap)
        database.write(lambda tx: add_nodes(tx, list(self.nodes), cores=cores, at=BEGIN))
        self.scripts, self.woken = self.platform.scripts, self.platform.woken
        self.slept, self.notified = self.platform.slept, self.platform.notified
        self.healed = self.platform.healed

    def _promises_never_overlap(self) -> None:
        with self.database.read() as tx:
            assert invariants.overlapping(plans.reserved_places(tx)) == []

    # What people do.

    def submit(self, command: str = "sleep 10", asked: str = "/core=1,walltime=1", **fields: Any) -> int:
        after = fields.pop("after", ())
        given = {"state": JobState.WAITING, "user": "ada", "queue": "default", "submitted": self.now, **fields}
        [job] = self.submit_jobs([new_jobs.NewJob(Job(id=0, command=command, **given), requests.parse([asked]), after)])
        self.settle()
        return job.id

    def kill(self, *ids: int, **more: Any) -> list[ActionResult]:
        return self.act(lambda tx: kill.request(tx, self.context, ids, by="ada", now=self.now, **more))

    def hold(self, *ids: int, running: bool = False) -> list[ActionResult]:
        return self.act(lambda tx: suspend.hold(tx, self.context, ids, by="ada", now=self.now, running=running))

    def resume(self, *ids: int) -> list[ActionResult]:
        return self.act(lambda tx: suspend.resume(tx, self.context, ids, by="ada", now=self.now))

    def signal(self, number: int, *ids: int) -> list[ActionResult]:
        return self.act(lambda tx: kill.signal(tx, self.context, ids, number, by="ada", now=self.now))

    def loses_connection(self, name: str, *, heard: bool) -> None:
        """Break the connection to a node while it is told something, which it heard or did not."""
        self._all[name].cut = True
        self.clock.call(name, self.now)
        raise NodeUnreachable(name, "the connection broke", sent=heard)

    # What is seen.

    def job(self, job_id: int) -> Job:
        with self.database.read() as tx:
            return jobs.get(tx, job_id)

    def story(self, job_id: int) -> list[str]:
        with self.database.read() as tx:
            return [str(state) for state, *_ in jobs.state_history(tx, job_id)]

    def story_why(self, job_id: int) -> list[str]:
        with self.database.read() as tx:
            return [why for *_, why in jobs.state_history(tx, job_id)]

    def events(self, job_id: int) -> list[str]:
        with self.database.read() as tx:
            return [str(noted.event.type) for noted in events.of_jobs(tx, [job_id])]

    def resources(self) -> list[Any]:
        with self.database.read() as tx:
            return [one.properties for one in resources.listed(tx)]

    def states(self) -> dict[str, set[str]]:
        seen: dict[str, set[str]] = {}
        for one in self.resources():
            seen.setdefault(one["network_address"], set()).add(one["state"])
        return seen

    def used(self) -> int:
        with self.database.read() as tx:
            return sum(row.consumption for row in accounting.listed(tx) if row.kind == "USED")

    def attempts(self, job_id: int) -> list[attempts.Attempt]:
        with self.database.read() as tx:
            return attempts.of_jobs(tx, [job_id])

    def placed(self, job_id: int) -> list[str]:
        with self.database.read() as tx:
            given = jobs.resources_of(tx, [job_id]).get(job_id, [])
            return sorted({str(one.properties["network_address"]) for one in resources.listed(tx, given)})

    # Time.

    def run_until(self, job_id: int, state: JobState, *, within: int = 10_000) -> None:
        end = self.now + within
        while self.job(job_id).state is not state:
            assert self.now < end, f"job {job_id} is {self.story(job_id)}, {self.events(job_id)}"
            self.step(self.next_event())

    def finish(self, within: int = 10_000) -> None:
        """Run until every job is over."""
        end = self.now + within
        while not self.all_over():
            assert self.now < end, "some job is never over"
            self.step(self.next_event())
