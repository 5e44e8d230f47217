"""Measurements of jobs of others, read from a real Prometheus: summaries, findings, reports, curves."""

import asyncio
import socket
import time
from dataclasses import replace
from operator import attrgetter
from urllib.parse import parse_qsl

import pytest

from oarlock.insight.mails import MailKind
from oarlock.measure.collect.series import NoSamples
from oarlock.measure.remote.engine import EngineAway
from oarlock.model.errors import OarlockError
from oarlock.server.portal import PortalMails
from oarlock.settings.kinds import JobReportMails, JobVisibility
from oarlock.store.queries.users import mails as stored_mails
from oarlock.web.identity import Caller, CallerChannel, UserAccount
from oarlock.web.pages.admin import admin
from oarlock.web.pages.job import job as job_page
from oarlock.web.pages.parts.view import View
from oarlock.web.pages.scheduler import scheduler
from oarlock.web.pages.usage import energy
from oarlock.web.verbs.users.mails import unsubscribe
from tests.measure.real import free_port
from tests.server.mailing.test_mail_queue import _mail_server as mail_server
from tests.sources.engine import Exporter, engine
from tests.sources.oar_cluster import NOW
from tests.sources.slurm_commands import PlayedSlurm, ended
from tests.sources.test_oar import ADMIN, ANN, Portal
from tests.sources.test_slurm import accounting, job, source_of  # noqa: F401  (a fixture)
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.component("prometheus"),
    pytest.mark.component("promtool"),
    pytest.mark.component("mariadb"),
]
PLAIN = pytest.mark.parametrize("accounting", ["plain"], indirect=True)

HOUR = 3600
SLACK = 1.8  # seconds that a page may take on a machine with much to do
BEGIN = NOW - 3 * HOUR
END = BEGIN + HOUR


def _add_shares(said):
    for account, level, cluster in (("science", 2.5, "peer"), ("<b>", 0.25, "peer"), ("theirs", 9, "other")):
        said.add("slurm_account_levelfs", NOW - HOUR, NOW + 60, level, account=account, cluster=cluster)
    for user, level in (("ann", 0.5), ("bob", 1.75)):
        said.add("slurm_user_levelfs", NOW - HOUR, NOW + 60, level, user=user, account="science", cluster="peer")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    """What two exporters, Lustre's servers and the nodes said three hours ago."""
    said = Exporter()
    said.slurm_job(11, BEGIN, END, cores=2, busy=0.6)
    said.slurm_job(12, BEGIN, END, cores=2, busy=2.0)
    for node, busy in (("n1", 2.0), ("n2", 0.0)):
        said.slurm_job(13, BEGIN, END, node=node, cores=2, busy=busy)
    said.slurm_job(14, BEGIN, END, cores=2, busy=0.1, gpus=(0, 0))
    said.petricore_job(15, BEGIN, END, cores=2, busy=2.0, files=2000, threads=9)
    said.slurm_job(20, NOW - HOUR, NOW + 60, cores=2, busy=0.5)
    for name, rate in (("read", 3e6), ("write", 1e6)):
        for target in (0, 1):
            said.add(f"lustre_job_{name}_bytes_total", BEGIN, END, lambda age, rate=rate: rate / 2 * age,
                     component="ost", target=f"scratch-OST000{target}", fs="scratch", jobid=12, instance="oss:9169",
                     cluster="peer")  # fmt: skip
    for cpu in range(4):
        said.add("node_cpu_seconds_total", BEGIN, END, lambda age: 0.3 * age, instance="n1.example:9100", cpu=cpu,
                 mode="user", cluster="peer")  # fmt: skip
    said.add("node_load1", BEGIN, END, 2.5, instance="n1.example:9100", cluster="peer")
    said.add("node_memory_MemAvailable_bytes", BEGIN, END, 8e9, instance="n1.example:9100", cluster="peer")
    said.add("redfish_chassis_power_average_consumed_watts", BEGIN, END, 230, instance="n1-oob", cluster="peer")
    for name, value in (("cpus_alloc", 6), ("cpus_idle", 2), ("cpus_total", 10), ("gpus_alloc", 1), ("gpus_total", 4)):
        for controller in ("slurm1:8080", "slurm2:8080"):
            said.add(f"slurm_{name}", NOW - HOUR, NOW + 60, value, instance=controller, cluster="peer")
    _add_shares(said)
    for node, state in (("n1", "mixed"), ("n2", "mixed"), ("n3", "drained")):
        said.add("slurm_node_state_info", NOW - HOUR, NOW + 60, 1, node=node, state=state, cluster="peer")
        said.add("slurm_node_state_info", NOW - HOUR, NOW + 60, 0, node=node, state="down", cluster="peer")
    own = {"instance": "n1.example:9100", "cluster": "peer"}
    for device, rate in (("sda", 2 << 20), ("sdb", 1 << 20)):
        said.add("node_disk_read_bytes_total", BEGIN, END, lambda age, rate=rate: rate * age, device=device, **own)
    for device, rate in (("eth0", 4 << 20), ("lo", 9 << 20)):
        said.add(
            "node_network_receive_bytes_total", BEGIN, END, lambda age, rate=rate: rate * age, device=device, **own
        )
    said.add("node_filesystem_avail_bytes", BEGIN, END, 5 << 30, mountpoint="/localscratch", device="sdb", **own)
    for node, watts in (("n2-oob", 500), ("n3-oob", 50)):
        said.add("redfish_chassis_power_average_consumed_watts", BEGIN, END, watts, instance=node, cluster="peer")
    said.add("slurm_job_power_gpu", BEGIN, END, 150_000, instance="n2:9798", slurmjobid=19, gpu=0, cluster="peer")
    said.add("slurm_job_power_gpu", BEGIN, END, 100_000, instance="n2:9798", slurmjobid=19, gpu=1, cluster="peer")
    said.add("node_load1", BEGIN, END, 99.0, instance="n11:9100", cluster="peer")
    running = engine(tmp_path_factory.mktemp("prometheus"), said)
    try:
        wait_until(running.ready, "Prometheus", 30)
        yield running
    finally:
        running.end()


def _ended(number, *, nodes="n1", cpus=2, state=3, limit=70, **more):
    return job(number, state, BEGIN, END, nodes=nodes, cpus=cpus, timelimit=limit, **{"exit_code": 0} | more)


def _jobs(server, *rows):
    server.run("\n".join(["DELETE FROM peer_job_table;", *rows]), "slurm_acct_db")


def _play(folder, server, url, story, **settings):
    _play_source(folder, source_of(server), url, story, **settings)


def _play_source(folder, source, url, story, **settings):
    async def play():
        portal = Portal(folder, source, **{"cluster_name": "peer", "prometheus_url": url} | settings)
        try:
            await portal.core.follower.look()
            await story(portal)
        finally:
            await portal.close()

    asyncio.run(play())


def _url(prometheus):
    return prometheus.url.removesuffix("/api/v1")


def _found(view):
    return [(finding.id, finding.severity.value) for finding in view.findings]


@PLAIN
def test_ended_jobs_of_slurm_get_summaries_by_query(accounting, prometheus, tmp_path):  # noqa: F811
    _jobs(
        accounting,
        _ended(11, limit=300), _ended(12), _ended(13, nodes="n[1-2]", cpus=4), _ended(14), _ended(15),
        _ended(16, state=6, limit=60), _ended(17, limit=900),
    )  # fmt: skip

    async def story(portal):
        assert await portal.core.measurements.look() == 7
        assert await portal.core.measurements.look() == 0, "each is asked for once"
        found = {number: _found(await portal.ask("jobs.findings", id=number)) for number in range(11, 18)}
        assert found == {
            11: [("cpu.low", "bad"), ("cpu.imbalance", "warn"), ("time.short", "warn")],
            12: [],
            13: [("cpu.zero", "bad"), ("cpu.low", "bad"), ("frag.nodes", "warn")],
            14: [("gpu.zero", "bad")],
            15: [("threads.many", "warn"), ("io.smallfiles", "warn"), ("io.noscratch", "warn")],
            16: [("time.exceeded", "bad")],
            17: [("time.short", "bad")],
        }
        report = (await portal.ask("jobs.report", id=12)).text
        assert any(line.startswith("  Cores   ███████████████████████") and " of 2 busy" in line for line in report)
        assert "  Read 10.0 GiB, written 3.3 GiB." in report, "as Lustre's servers count"
        pdf = await portal.ask("jobs.report_pdf", id=12)
        assert pdf.content.startswith(b"%PDF-")
        [ann] = (await portal.ask("reports.period", user="ann", since=BEGIN - HOUR, until=NOW)).report.groups
        assert ann.usage.jobs == 5, "those that were measured"

    _play(tmp_path, accounting, _url(prometheus), story)


def test_jobs_that_sacct_tells_get_the_same_summaries(prometheus, tmp_path):
    played = PlayedSlurm()
    played.ended = [ended(11, "COMPLETED", BEGIN, END, limit=300), ended(16, "TIMEOUT", BEGIN, END)]

    async def story(portal):
        assert await portal.core.measurements.look() == 2
        assert _found(await portal.ask("jobs.findings", id=11)) == [
            ("cpu.low", "bad"), ("cpu.imbalance", "warn"), ("time.short", "warn")
        ]  # fmt: skip
        assert _found(await portal.ask("jobs.findings", id=16)) == [("time.exceeded", "bad")]
        assert (await portal.ask("jobs.report_pdf", id=11)).content.startswith(b"%PDF-")

    _play_source(tmp_path, played.source(), _url(prometheus), story, source_history=1)


@PLAIN
def test_curves_of_jobs_and_nodes_come_from_the_exporters(accounting, prometheus, tmp_path):  # noqa: F811
    _jobs(accounting, _ended(12), _ended(15), job(20, 1, NOW - HOUR, 0, nodes="n1", timelimit=300))

    async def story(portal):
        view = await portal.ask("jobs.series", id=12)
        assert {curve.metric: round(curve.points[30][2]) for curve in view.series} == {
            "cpu_seconds_total": 2, "memory_anonymous_bytes": 8e8, "memory_cache_bytes": 5e8,
            "read_bytes_total": 3e6, "written_bytes_total": 1e6,
        }  # fmt: skip
        assert {curve.node for curve in view.series} == {"n1", ""}, "Lustre's servers do not know nodes"
        other = await portal.ask("jobs.series", id=15, metrics=["process_threads", "memory_anonymous_bytes"])
        assert {curve.series: curve.points[30][2] for curve in other.series} == {
            'process_threads{exe="solver"}': 9.0, "memory_anonymous_bytes": 954.0 * (1 << 20)}  # fmt: skip
        live = await portal.ask("jobs.series", id=20)
        assert live.until == NOW
        wanted = ["load_1min", "meminfo_mem_available_bytes", "power_watts"]
        node = await portal.ask("nodes.series", name="n1", since=BEGIN, until=END, metrics=wanted)
        assert {curve.metric: curve.points[30][2] for curve in node.series} == dict(
            zip(wanted, (2.5, 8e9, 230.0), strict=True)
        )
        assert {curve.node for curve in node.series} == {"n1"}
        shown = await job_page(View(portal.dispatcher, ADMIN, "", {}, {"id": "12"}))
        plots = {plot.id: plot for plot in shown.values["plots"]}
        assert set(plots) == {"cpu", "memory", "io", "node-disk", "node-network", "node-room"}
        assert {line.name: round(line.values[30]) for line in plots["node-disk"].lines} == {
            "read sda": 2,
            "read sdb": 1,
        }
        assert {line.name: round(line.values[30]) for line in plots["node-network"].lines} == {"received eth0": 4}
        assert {line.name: round(line.values[30]) for line in plots["node-room"].lines} == {"free on /localscratch": 5}
        page = await portal.page(job_page, "/jobs/12", id="12")
        assert "Network of its nodes, MiB/s" in page
        stranger = await portal.page(job_page, "/jobs/12", Caller(UserAccount("eve", 9), CallerChannel.TOKEN), id="12")
        assert "Network of its nodes" not in stranger
        with pytest.raises(OarlockError, match="Nothing measures n2"):
            await portal.ask("nodes.series", name="n2", since=BEGIN, until=END)

    _play(tmp_path, accounting, _url(prometheus), story)


@PLAIN
def test_a_job_that_runs_is_summarised_again_after_five_minutes(accounting, prometheus, tmp_path):  # noqa: F811
    _jobs(accounting, job(20, 1, NOW - HOUR, 0, nodes="n1", timelimit=300))

    async def story(portal):
        assert await portal.core.measurements.look() == 1
        assert _found(await portal.ask("jobs.findings", id=20)) == [("cpu.low", "bad"), ("cpu.imbalance", "warn")]
        assert await portal.core.measurements.look() == 0
        portal.core.clock.now = lambda: NOW + 300
        assert await portal.core.measurements.look() == 1
        accounting.run(job(20, 3, NOW - HOUR, NOW, nodes="n1", timelimit=300, exit_code=0), "slurm_acct_db")
        await portal.core.follower.look()
        portal.core.clock.now = lambda: NOW + 600
        assert await portal.core.measurements.look() == 0, "it was summarised after its end"

    _play(tmp_path, accounting, _url(prometheus), story)


def test_the_scheduler_page_has_what_slurm_exporter_says(prometheus, tmp_path):
    async def story(portal):
        figures = await portal.ask("scheduler.exporter")
        assert figures.cores == {"alloc": 6, "idle": 2, "total": 10}
        assert figures.gpus == {"alloc": 1, "total": 4}
        assert figures.nodes == {"mixed": 2, "drained": 1}
        assert figures.shares == {"science": 2.5, "<b>": 0.25}
        assert sorted(map(attrgetter("user", "account", "level"), figures.user_shares)) == [
            ("ann", "science", 0.5),
            ("bob", "science", 1.75),
        ]
        assert set(figures.allocated) == {6.0}
        assert len(figures.times) >= 12
        page = await portal.page(scheduler, "/scheduler")
        assert "6 of 10 allocated" in page
        assert '<svg class="plot"' in page
        assert "<td>&lt;b&gt;</td>" in page
        assert page.index("<td>bob</td>") < page.index("<td>ann</td>")
        assert page.index("<td>science</td>") < page.index("<td>&lt;b&gt;</td>"), "who comes first stands first"
        policy = portal.dispatcher.policy
        portal.dispatcher.policy = replace(policy, config=replace(policy.config, job_visibility=JobVisibility.OWN))
        seen = await portal.ask("scheduler.exporter", ANN)
        assert seen.shares == {}, "others' accounts are not theirs to see"
        assert [share.user for share in seen.user_shares] == ["ann"], "nor are other users"

    _play_source(tmp_path, PlayedSlurm().source(), _url(prometheus), story, source_history=1)


@PLAIN
def test_the_watts_of_nodes_are_divided_among_their_jobs(accounting, prometheus, tmp_path):  # noqa: F811
    half = BEGIN + HOUR // 2
    _jobs(
        accounting, _ended(12), job(18, 3, half, END, nodes="n1", cpus=1, user=2, exit_code=0),
        _ended(19, nodes="n2", cpus=1),
    )  # fmt: skip

    async def story(portal):
        measurements = portal.core.measurements
        await measurements.look()
        while await measurements.energy.look():
            pass
        assert measurements.energy.health.answers
        nodes = {row.group["node"]: row for row in (await portal.ask("energy.show", since=BEGIN - 9000)).rows}
        for row in nodes.values():
            meter = row.meter
            assert round(meter.joules * 1000) == round(row.joules * 1000) + round(meter.idle_joules * 1000)
        measured = nodes["n1"].meter.seconds
        assert HOUR - 120 < measured < HOUR
        assert {name: round(row.meter.joules / row.meter.seconds) for name, row in nodes.items()} == {
            "n1": 230, "n2": 500, "n3": 50,
        }  # fmt: skip
        jobs = (await portal.ask("energy.show", since=BEGIN - 9000, by=["job"])).rows
        watts = {row.group["job"]: row.joules / measured for row in jobs}
        assert watts == pytest.approx({12: 115.0, 18: 230 / 4 / 2, 19: 250 + 250 / 4}, rel=0.02)
        assert [row.jobs for row in nodes.values()] == [2, 1, 0]
        report = (await portal.ask("jobs.report", id=12)).text
        assert any("0.11 kWh" in line for line in report), report
        page = await portal.page(energy, "/energy")
        assert "n1" in page
        await portal.core.follower.look()
        assert not await measurements.energy.look(), "nothing is booked twice"
        portal.core.clock.now = lambda: NOW + 3 * HOUR
        await portal.core.follower.look()
        while await measurements.energy.look():
            pass
        assert (await portal.ask("energy.show", since=BEGIN - 9000, by=["job"])).rows == jobs

    _play(tmp_path, accounting, _url(prometheus), story, source_history=1)


def test_a_scheduler_page_without_slurm_exporter_is_shorter(prometheus, tmp_path):
    async def story(portal):
        with pytest.raises(NoSamples, match="No slurm-exporter is read here"):
            await portal.ask("scheduler.exporter")
        page = await portal.page(scheduler, "/scheduler")
        assert "Queues" in page
        assert "As Slurm counts" not in page
        assert "cannot be shown" not in page

    _play_source(tmp_path, PlayedSlurm().source(), _url(prometheus), story, cluster_name="another", source_history=1)


@PLAIN
def test_energy_does_not_stand_for_a_jobs_last_samples(accounting, prometheus, tmp_path):  # noqa: F811
    _jobs(accounting, job(12, 1, BEGIN, 0, nodes="n1", timelimit=300))

    async def story(portal):
        measurements = portal.core.measurements
        portal.core.clock.now = lambda: BEGIN + 1800
        await portal.core.follower.look()
        assert await measurements.look() == 1
        accounting.run(_ended(12), "slurm_acct_db")
        portal.core.clock.now = lambda: END + 30
        await portal.core.follower.look()
        while await measurements.energy.look():
            pass
        portal.core.clock.now = lambda: END + 90
        assert await measurements.look() == 1, "its end is not measured yet"
        assert (await portal.ask("jobs.usage", id=12)).energy_joules > 0

    _play(tmp_path, accounting, _url(prometheus), story, source_history=1)


@PLAIN
def test_a_prometheus_that_is_away_costs_a_sentence(accounting, tmp_path):  # noqa: F811
    _jobs(accounting, _ended(12))
    url = f"http://127.0.0.1:{free_port()}"

    async def story(portal):
        with pytest.raises(EngineAway, match="Connection refused"):
            await portal.core.measurements.look()
        with pytest.raises(EngineAway, match="Connection refused"):
            await portal.core.measurements.energy.look()
        with pytest.raises(EngineAway, match="Connection refused"):
            await portal.ask("jobs.series", id=12)
        health = {entry.name: entry for entry in (await portal.ask("sources.health")).sources}
        assert not health["Prometheus: summaries"].answers
        assert "Connection refused" in health["Prometheus: power"].says
        assert "Connection refused" in health["Prometheus: curves"].says
        assert health["Slurm's database: jobs"].answers
        page = await portal.page(scheduler, "/scheduler")
        assert "What slurm-exporter says cannot be shown. Prometheus has no answer: [Errno 111]" in page
        assert "127.0.0.1" not in page
        assert f"Prometheus at {url} has no answer" in await portal.page(admin, "/admin")
        assert "Queues" in page, "the other cards are there"
        assert "does not answer" in await portal.page(admin, "/admin")
        assert (await portal.ask("jobs.show", id=12)).state == "Terminated", "jobs are shown all the same"
        assert (await portal.ask("jobs.findings", id=12)).facts == {}, "nothing is made up"

    _play(tmp_path, accounting, url, story)


@PLAIN
def test_what_was_answered_holds_for_a_minute_and_so_does_a_failure(accounting, tmp_path):  # noqa: F811
    _jobs(accounting, _ended(12))

    async def story(portal):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            target = portal.core.measurements._curves.target
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            portal.core.measurements._curves.target = target._replace(url=url)
            for _ in range(2):
                with pytest.raises(EngineAway, match="none within 2 s"):
                    await portal.ask("jobs.series", id=12)
            silent.setblocking(False)
            silent.accept()[0].close()
            with pytest.raises(BlockingIOError):
                silent.accept()
            # Other questions, too, are answered at once: the page of the scheduler has its other cards.
            for _ in range(2):
                began = time.monotonic()
                page = await portal.page(scheduler, "/scheduler")
                assert time.monotonic() - began < SLACK
                assert "cannot be shown. Prometheus has no answer" in page
                assert "none within 2 s" in page
                assert "Queues" in page

    _play(tmp_path, accounting, "http://127.0.0.1:9", story)


@PLAIN
@pytest.mark.parametrize("about", [JobReportMails.ALL, JobReportMails.FINDINGS])
def test_users_are_mailed_what_their_ended_jobs_used(accounting, prometheus, tmp_path, about):  # noqa: F811
    addresses, port = tmp_path / "addresses", free_port()
    addresses.write_text("ann ann@lab.org\nbob bob@lab.org\n")
    settings = {"mail_job_reports": about, "mail_addresses": addresses, "mail_smtp_server": f"127.0.0.1:{port}",
                "portal_url": "https://portal.lab.org"}  # fmt: skip
    _jobs(accounting, job(99, 3, BEGIN - 2000, BEGIN - 1000, nodes="n1"))  # before the first look: not mailed

    async def story(portal):
        async def pass_until(instant):
            portal.core.clock.now = lambda: instant
            await portal.core.follower.look()
            await portal.core.measurements.look()
            await mails.send_due()

        mails = PortalMails(portal.core)
        await pass_until(BEGIN)
        rows = [_ended(11, limit=300), *(_ended(90 + at, limit=61) for at in range(6)), _ended(12, user=2)]
        _jobs(accounting, *rows)
        await pass_until(END + 800)
        assert not await _stored(portal), "not all is known of them yet"
        await pass_until(END + 1500)
        written = await _stored(portal)
        assert [(mail.user, mail.rule, mail.sent) for mail in written] == [
            (user, "job.report", 0) for user in (["ann", "bob"] if about is JobReportMails.ALL else ["ann"])
        ], "the mail server is away: they wait"  # fmt: skip
        with mail_server(port) as box:
            await pass_until(END + 3000)
        letter = next(letter for letter in box.received if letter["To"] == "ann@lab.org")
        text = letter.get_body(("plain",)).get_content()
        assert "time.short" in text
        assert "https://portal.lab.org/jobs/" in text
        if about is JobReportMails.ALL:
            assert letter["Subject"] == "[OAR] 7 jobs of yours on peer ended"
            assert text.count("Cores   ") == 5, "five are whole"
            assert text.count("queue main: Terminated, exit 0: ") == 2, "the others have a line each"
        else:
            assert letter["Subject"] == "[OAR] Job 11 on peer ended: Terminated"
        link = letter["List-Unsubscribe"].strip("<>").partition("?")[2]
        await unsubscribe(portal.core, **dict(parse_qsl(link)))
        wanted = {choice.kind: choice.wanted for choice in (await portal.ask("mail.choices", ANN)).choices}
        assert not wanted[MailKind.JOB]
        previewed = (await portal.ask("digests.preview")).digests
        assert "ann" not in [mail.user for mail in previewed if mail.rule == "job.report"]

    _play(tmp_path, accounting, _url(prometheus), story, **settings)


async def _stored(portal):
    return sorted(await portal.core.read(lambda tx: stored_mails.last(tx, most=100)), key=lambda mail: mail.user)


@PLAIN
def test_users_of_such_a_cluster_get_digests(accounting, prometheus, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setenv("TZ", "UTC")
    _jobs(accounting, _ended(11, limit=300), _ended(12, user=2))
    addresses = tmp_path / "addresses"
    addresses.write_text("ann ann@lab.org\nbob bob@lab.org\n")
    port = free_port()
    settings = {"mail_digests": True, "mail_addresses": addresses, "mail_smtp_server": f"127.0.0.1:{port}"}

    async def story(portal):
        await portal.core.measurements.look()
        portal.core.clock.now = lambda: NOW + 7 * 24 * HOUR
        with mail_server(port) as box:
            mails = PortalMails(portal.core)
            await mails.send_due()
            await mails.send_due()
        [letter] = box.received
        assert letter["To"] == "ann@lab.org", "nothing was found about bob's job"
        assert "1 × cpu.low" in letter.get_body(("plain",)).get_content()

    _play(tmp_path, accounting, _url(prometheus), story, **settings)
