"""The past of a real OAR 2, replayed: its own tables, and rows as OAR 2.5.9 was seen to write them."""

from collections.abc import Iterator

import psycopg
import pytest

from oarlock.lang import request
from oarlock.model.snapshot import Shape
from oarlock.simulate.compare import Comparison
from oarlock.simulate.platform import parse
from oarlock.simulate.trace import read_trace
from tests.databases import Postgres
from tests.simulate.oar_schema import oar_sql

BEGIN = 1_794_798_679
RULES = "(desktop_computing = 'NO') AND drain='NO'"  # what OAR's shipped admission rules add to a job
DEFAULT = "type = 'default'"  # ... and to a group


class Oar:
    """A database of OAR, written as OAR writes it."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def nodes(self) -> None:
        """Add four nodes of four cores as `oarnodesetting -a` does, the last of which is gone by now; and a licence."""
        self._run("ALTER TABLE resources ADD host VARCHAR(255)")
        self._run("ALTER TABLE resources ADD core INTEGER")
        for number in range(16):
            node = f"node{number // 4 + 1}"
            values = (node, node, number + 1, str(number % 4), "Dead" if node == "node4" else "Alive")
            self._run(
                "INSERT INTO resources (network_address, host, core, cpuset, state) VALUES (%s, %s, %s, %s, %s)", values
            )
        self._run("INSERT INTO resources (type) VALUES ('licence')")

    def job(
        self,
        user: str,
        groups: list[tuple[str, list[tuple[str, int]]]],
        on: list[int],
        *,
        submitted: int,
        start: int,
        stop: int,
        walltime: int,
        state: str = "Terminated",
        types: tuple[str, ...] = (),
    ) -> int:
        """Add a job that is over, with rows in every table that `oarsub` and the scheduler leave behind."""
        [number] = self._run(
            "INSERT INTO jobs (state, job_user, project, queue_name, properties, launching_directory, submission_time,"
            " start_time, stop_time, checkpoint_signal, exit_code, message)"
            " VALUES (%s, %s, 'default', 'default', %s, '/home', %s, %s, %s, 12, NULL, 'R=2,W=0:1:0') RETURNING job_id",
            (state, user, RULES, BEGIN + submitted, start and BEGIN + start, stop and BEGIN + stop),
        )
        [moldable] = self._run(
            "INSERT INTO moldable_job_descriptions (moldable_job_id, moldable_walltime, moldable_index)"
            " VALUES (%s, %s, 'LOG') RETURNING moldable_id",
            (number, walltime),
        )
        for condition, levels in groups:
            [group] = self._run(
                "INSERT INTO job_resource_groups (res_group_moldable_id, res_group_property, res_group_index)"
                " VALUES (%s, %s, 'LOG') RETURNING res_group_id",
                (moldable, condition),
            )
            for place, (name, count) in enumerate(levels):
                self._run(
                    "INSERT INTO job_resource_descriptions VALUES (%s, %s, %s, %s, 'LOG')", (group, name, count, place)
                )
        for resource in on:
            self._run("INSERT INTO assigned_resources VALUES (%s, %s, 'LOG')", (moldable, resource))
        for one in types:
            self._run("INSERT INTO job_types (job_id, type, types_index) VALUES (%s, %s, 'LOG')", (number, one))
        if on:
            self._run("UPDATE jobs SET assigned_moldable_job = %s WHERE job_id = %s", (moldable, number))
        return int(number)

    def _run(self, sql: str, values: tuple[object, ...] | None = None) -> tuple[int, ...]:
        found = self._connection.execute(sql, values)
        return found.fetchone() if found.description else ()


@pytest.fixture
def oar(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """Where a database of OAR is, with jobs of a busy minute."""
    statements = oar_sql(request.config.cache.mkdir("oar-schema"))
    place = postgres.make(template="template0")
    with psycopg.connect(place) as connection:
        for statement in statements:
            connection.execute(statement)
        _live(Oar(connection))
    yield place
    postgres.drop(place)


def _live(oar: Oar) -> None:
    oar.nodes()
    all_nodes = [(DEFAULT, [("network_address", 4)])]
    oar.job("ada", [(DEFAULT, [("host", 2), ("core", 2)])], [1, 2, 5, 6], submitted=0, start=2, stop=12, walltime=40)
    oar.job("bob", all_nodes, list(range(1, 17)), submitted=1, start=13, stop=23, walltime=30)
    oar.job("bob", [(DEFAULT, [("core", -1)])], list(range(1, 17)), submitted=2, start=24, stop=30, walltime=30)
    licence = [("type = 'licence'", [("resource_id", 1)]), (DEFAULT, [("core", 1)])]
    oar.job("ada", licence, [1, 17], submitted=3, start=31, stop=60, walltime=20)  # ended after its walltime
    oar.job("ada", [(DEFAULT, [("core", 8)])], list(range(1, 9)), submitted=40, start=62, stop=70, walltime=60,
            types=("container",))  # fmt: skip
    oar.job("ada", [(DEFAULT, [("core", 2)])], [1, 2], submitted=41, start=63, stop=65, walltime=60,
            types=("inner=5",))  # fmt: skip
    # As OAR leaves them: a reservation that was refused, and a job that was deleted while it waited.
    oar.job("ada", all_nodes, [], submitted=50, start=90, stop=90, walltime=60, state="Error")
    oar.job("bob", all_nodes, [], submitted=51, start=0, stop=0, walltime=60, state="Error")


def _shape(text: str) -> Shape:
    asked = request.parse([text])
    return Shape(asked.alternatives[0].groups, asked.where)


def test_jobs_of_oar_are_read_as_they_ran(oar: str):
    trace = read_trace(oar)
    assert [(job.number, job.submitted - BEGIN, job.waited, job.run, job.walltime, job.processors)
            for job in trace.jobs] == [
        (1, 0, 2, 10, 40, 4),
        (2, 1, 12, 10, 30, 16),
        (3, 2, 22, 6, 30, 16),
        (4, 3, 28, 20, 20, 1),
        (5, 40, 22, 8, 60, 8),
    ]  # fmt: skip
    assert trace.jobs[0].shape.groups == _shape("{type = 'default'}/host=2/core=2").groups
    assert {str(job.shape.where) for job in trace.jobs} == {str(trace.jobs[0].shape.where)} != {"None"}
    assert trace.skipped == {"inner jobs, which ran on the resources of their container": 1}


def test_resources_that_are_gone_were_there_for_their_jobs(oar: str):
    trace = read_trace(oar)
    assert trace.remarks == ("4 resources that are Dead today count as ready, since jobs of this stretch had them",)
    assert parse(None, trace).size == 16
    later = read_trace(oar, since=BEGIN + 40)
    assert (later.remarks, parse(None, later).size) == ((), 12)


@pytest.mark.parametrize("full", [False, True], ids=["planner", "everything"])
def test_a_replay_starts_jobs_when_a_cluster_without_delays_would_have(oar: str, full: bool):
    trace = read_trace(oar)
    [result] = Comparison(parse(None, trace), full=full).of(trace, ["conservative"])
    # Who wants all four nodes waits for the one core that is taken until 23; who wants all cores waits for that one.
    assert [(one.job.number, one.start - BEGIN) for one in result.ran] == [(1, 0), (2, 23), (3, 33), (4, 3), (5, 40)]
    assert result.measures.mean_wait == (0 + 22 + 31 + 0 + 0) / 5
