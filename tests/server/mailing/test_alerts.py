"""Mails to administrators: of what, in which words, and that none is lost while the mail server is away."""

import asyncio
from dataclasses import dataclass, field

import pytest

from oarlock.config import Config
from oarlock.job.run import notices
from oarlock.job.run.reports import NotificationFailed
from oarlock.model.event import Event, EventType
from oarlock.server.mailing.mail_queue import AlertSender
from oarlock.store.queries.cluster import events
from tests.bed import run_async
from tests.server.post_office import post_office


@dataclass
class _Core:
    """As much of a server as mails need."""

    database: object
    config: Config
    reports: list = field(default_factory=list)

    async def read(self, question):
        with self.database.read() as tx:
            return question(tx)

    async def write(self, change):
        return await asyncio.wrap_future(self.database.submit(change))

    def queue_report(self, report):
        self.reports.append(report)


def _core(database, server):
    return _Core(database, Config(mail_smtp_server=server, mail_recipient=("root@lab.org", "ops@lab.org")))


def _happened(database, *kinds, **more):
    database.write(lambda tx: events.add(tx, [Event(kind, 100, "because", **more) for kind in kinds]))


@run_async
async def test_administrators_get_one_mail_of_what_stops_nodes_or_queues(database):
    _happened(database, EventType.EXTERMINATE_JOB)  # before anybody asked to be told
    database.write(notices.begin_alerts)
    _happened(database, EventType.WALLTIME, job=7)
    _happened(database, EventType.PROLOGUE_ERROR, job=8, hosts=("n1", "n2"))
    _happened(database, EventType.SERVER_EPILOGUE_TIMEOUT, EventType.MAIL_NOTIFICATION_ERROR)
    with post_office() as post:
        mails = AlertSender(_core(database, post.place))
        await mails.send_due()
        await mails.send_due()
    [text] = post.mails
    assert "To: root@lab.org, ops@lab.org" in text
    assert "Subject: [OAR] PROLOGUE_ERROR and 1 more" in text
    assert "PROLOGUE_ERROR (job 8; n1, n2): the prologue failed on the first node." in text
    assert "All queues were stopped; `oarnotify -E` starts them again." in text
    assert "WALLTIME" not in text
    assert "EXTERMINATE" not in text


@pytest.mark.manual(143)
@run_async
async def test_an_absent_mail_server_is_one_event_and_then_the_mail(database):
    database.write(notices.begin_alerts)
    _happened(database, EventType.CPUSET_ERROR, hosts=("n1",))
    core = _core(database, "127.0.0.1:1")
    mails = AlertSender(core)
    await mails.send_due()
    await mails.send_due()
    [report] = core.reports
    assert isinstance(report, NotificationFailed)
    assert (report.job, report.event) == (0, EventType.MAIL_NOTIFICATION_ERROR)
    assert report.says.startswith("a mail to root@lab.org, ops@lab.org could not be sent: ")
    with post_office() as post:
        await AlertSender(_core(database, post.place)).send_due()
    assert "CPUSET_ERROR (n1)" in post.mails[0]
