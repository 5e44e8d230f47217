"""Jobs whose GPUs do nothing, warned and ended by a server."""

import asyncio

import pytest

from oarlock.config import Config
from oarlock.server.mailing.idle_jobs import IdleJobActions
from oarlock.store.engine.database import Database
from oarlock.store.queries.cluster import events
from oarlock.store.queries.users import mails
from tests.clusters import add_nodes
from tests.web.measured_jobs import measure_gpu, runs_on_gpu
from tests.web.nodeless_server import NOW
from tests.web.verbs.users.test_mails import _Core

MINUTE = 60


class _Killing(_Core):
    """Remembers whose end was asked for."""

    def __post_init__(self) -> None:
        self.killed: list[tuple[int, str]] = []

    async def kill(self, ids, *, by):
        self.killed += [(number, by) for number in ids]


@pytest.fixture
def core(database: Database, tmp_path) -> _Killing:
    file = tmp_path / "findings.toml"
    file.write_text('[[finding]]\nid = "gpu.zero"\nact = "delete"\nexcept_users = ["bin"]\n'
                    '[[finding]]\nid = "gpu.idle_window"\nact = "warn"\n')  # fmt: skip
    core = _Killing(database, Config(findings_file=file, mail_user_domain="lab.org", mail_smtp_server="127.0.0.1:9"))
    core.__post_init__()
    return core


def _look(core, minutes, jobs):
    """Measure jobs after so many idle minutes, and let the server look."""
    core.clock.at = NOW + minutes * MINUTE
    for job, worked in jobs.items():
        core.database.write(
            lambda tx, job=job, worked=worked: measure_gpu(tx, job, begin=NOW, idle=minutes * MINUTE, worked=worked)
        )
    asyncio.run(IdleJobActions(core).act_due())


def _said(core, job):
    """Return the events and the subjects of the mails of a job."""
    with core.database.read() as tx:
        kinds = [row.event.type.value for row in events.of_jobs(tx, [job])]
        return kinds, [mail.subject for mail in mails.last(tx, most=99) if mail.job == job][::-1]


def test_an_idle_job_is_warned_twice_and_ended_and_others_are_not(core: _Killing):
    def fill(tx):
        cores = add_nodes(tx, ["n1", "n2"])
        begin = {"begin": NOW, "idle": 0.0}
        return [
            runs_on_gpu(tx, cores[:1], "daemon", worked=False, **begin),
            runs_on_gpu(tx, cores[1:2], "bin", worked=False, **begin),
            runs_on_gpu(tx, cores[2:3], "nobody", worked=True, **begin),
        ]

    unused, excepted, worked = core.database.write(fill)
    jobs = {unused: False, excepted: False, worked: True}
    for minutes in (30, 59, 60, 62, 105, 119):
        _look(core, minutes, jobs)
    assert core.killed == []
    _look(core, 120, jobs)
    _look(core, 122, jobs)
    assert core.killed == [(unused, "rule gpu.zero")]
    warned = "[OAR] Job {} does not use its GPUs"
    assert _said(core, unused) == (
        ["IDLE_JOB_WARNED", "IDLE_JOB_WARNED", "IDLE_JOB_ENDED"],
        [warned.format(unused)] * 2 + [f"[OAR] Job {unused} was ended"],
    )
    assert _said(core, excepted) == ([], [])
    assert _said(core, worked) == (["IDLE_JOB_WARNED"] * 2, [warned.format(worked)] * 2)
    with core.database.read() as tx:
        text = [mail.body for mail in mails.last(tx, most=99) if mail.job == unused][-1]
    assert "None of its 1 GPUs did anything in 1:00:00." in text
    assert "it is ended in 60 unless they work." in text


def test_without_rules_that_act_nothing_is_looked_at(core: _Killing):
    core.config = Config()
    asyncio.run(IdleJobActions(core).act_due())
    assert core.killed == []
