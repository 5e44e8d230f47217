"""The site's own schedulers beside the passes: asked when something changed, and again after a failure."""

import asyncio

import pytest

from oarlock.config import Config
from oarlock.model.snapshot import Promise, SitePlan
from oarlock.server.effects import programs
from oarlock.server.planning.client import PlanningClient
from oarlock.server.planning.site_schedulers import SiteSchedulers
from oarlock.store.engine.opening import open_database
from tests.bed import needs_root, run_async, script, site_directory
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job
from tests.waiting import until

pytestmark = needs_root

PLACE = '{"placements": [{"job_id": 1, "resources": [1]}]}'


class SetClock:
    """A clock that a test sets."""

    at = 0.0

    def now(self) -> float:
        return NOW + self.at

    def steady(self) -> float:
        return self.at


@pytest.fixture
def folder():
    with site_directory() as path:
        yield path


@run_async
async def test_a_program_is_asked_again_after_a_failure_and_after_a_change(folder, tmp_path):
    script(folder / "ours", f"echo asked >> {folder}/asked; cat {folder}/answer")
    clock, woken, reports = SetClock(), [], []

    async def report(says: str) -> None:
        reports.append(says)

    with open_database(tmp_path / "oarlock.db", create=True) as database:
        database.write(lambda tx: add_nodes(tx, ["node1"]))
        database.write(lambda tx: add_job(tx, "/resource_id=1,walltime=1"))
        config = Config(scheduler_program_dir=folder)
        planning = PlanningClient(database, config)
        schedulers = SiteSchedulers(planning, config, clock, wake=lambda: woken.append(1), report=report)
        asking = asyncio.create_task(schedulers.run())

        def asked() -> int:
            return (folder / "asked").read_text().count("\n") if (folder / "asked").exists() else 0

        schedulers.follow([("default", "ours")])
        assert planning.site_plans == {"default": SitePlan("ours", answered=False)}
        await until(lambda: reports)
        assert (planning.site_plans, asked(), len(woken)) == ({}, 1, 1)
        assert "/ours ended with exit 1: cat: " in reports[0]
        (folder / "answer").write_text(PLACE)
        schedulers.follow([("default", "ours")])  # too soon
        clock.at = 61.0
        schedulers.follow([("default", "ours")])
        await until(lambda: planning.site_plans)
        assert planning.site_plans == {"default": SitePlan("ours", ((1, Promise(1, 0, (1,))),))}
        assert (asked(), len(woken), len(reports)) == (2, 2, 1)
        schedulers.follow([("default", "ours")])  # nothing changed
        await until(lambda: not schedulers.is_asking)
        assert asked() == 2
        database.write(lambda tx: add_job(tx, "/resource_id=1,walltime=1"))
        schedulers.follow([("default", "ours")])
        await until(lambda: asked() == 3 and not schedulers.is_asking)
        assert len(woken) == 2  # the same answer needs no pass
        schedulers.follow([])
        assert planning.site_plans == {}
        asking.cancel()
        planning.close_threads()


@run_async
async def test_a_program_that_prints_without_end_is_ended(folder):
    flood = script(folder / "flood", "exec cat /dev/zero")
    output = await programs.run_fed([flood], b"", seconds=60)
    assert (output.status, output.out, output.err) == (-1, "", f"{flood} printed more than 64 MiB")
    slow = script(folder / "slow", "head -c 1000000 /dev/zero; exec sleep 60")
    output = await programs.run_fed([slow], b"x" * 1_000_000, seconds=0.3)
    assert (output.status, output.err) == (None, f"{slow} did not end within 0.3 s")
    deaf = script(folder / "deaf", "exec echo done")
    assert (await programs.run_fed([deaf], b"x" * 1_000_000, seconds=60)).out == "done\n"
