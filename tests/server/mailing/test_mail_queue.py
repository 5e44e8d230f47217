"""The queue of mails, with a real mail server: what is sent, tried again, given up, and reported once."""

import asyncio
import email
import email.policy
import socket
from contextlib import contextmanager
from dataclasses import dataclass, field

from aiosmtpd.controller import Controller

from oarlock.config import Config
from oarlock.job.run.effects import Notify
from oarlock.job.run.reports import NotificationFailed, NotificationSent
from oarlock.model.event import EventType
from oarlock.server.effects.notices import NoticeSender
from oarlock.server.mailing.mail_queue import MailQueue
from oarlock.store.queries.users import mails
from oarlock.store.queries.users.mails import NewMail
from tests.bed import run_async
from tests.web.nodeless_server import NOW, StillClock

MINUTE, HOUR, DAY = 60, 3600, 86_400


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@dataclass
class _Core:
    """As much of a server as mails need."""

    database: object
    config: Config
    clock: StillClock = field(default_factory=StillClock)
    reports: list = field(default_factory=list)

    async def read(self, question):
        with self.database.read() as tx:
            return question(tx)

    async def write(self, change):
        return await asyncio.wrap_future(self.database.submit(change))

    async def enqueue_mail(self, mail):
        await self.write(lambda tx: mails.add(tx, mail, now=self.clock.now()))

    def queue_report(self, report):
        self.reports.append(report)

    @property
    def stored(self):
        with self.database.read() as tx:
            return [(row.id, row.tries, row.sent, row.due) for row in sorted(mails.last(tx, most=9))]


class _Box:
    """What a mail server does with mails: it keeps them, and refuses those of nobody."""

    def __init__(self):
        self.received = []

    async def handle_RCPT(self, server, session, envelope, address, options):
        if address.startswith("nobody@"):
            return "550 no such user"
        envelope.rcpt_tos.append(address)
        return "250 ok"

    async def handle_DATA(self, server, session, envelope):
        self.received.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 ok"


@contextmanager
def _mail_server(port):
    box = _Box()
    controller = Controller(box, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield box
    finally:
        controller.stop()


def _core(database, port):
    return _Core(database, Config(mail_smtp_server=f"127.0.0.1:{port}", mail_sender="oar@lab.org"))


def _new(address="ada@lab.org", **fields):
    return NewMail(0, "ada", "", address, "Your week", "Hello", **fields)


@run_async
async def test_a_mail_has_a_text_and_an_html_part_and_is_sent_once(database):
    port = free_port()
    core = _core(database, port)
    await core.enqueue_mail(_new(html="<p>Hello <b>ada</b></p>"))
    await core.enqueue_mail(_new()._replace(due=NOW + HOUR))
    with _mail_server(port) as box:
        queue = MailQueue(core)
        await queue.send_due()
        await queue.send_due()
    [letter] = box.received
    assert (letter["To"], letter["Subject"]) == ("ada@lab.org", "Your week")
    assert letter["Date"]
    assert letter["Message-ID"]
    assert letter.get_body(("plain",)).get_content().strip() == "Hello"
    assert letter.get_body(("html",)).get_content().strip() == "<p>Hello <b>ada</b></p>"
    assert core.stored == [(1, 1, NOW, 0), (2, 0, 0, NOW + HOUR)]


@run_async
async def test_mails_wait_for_a_server_that_is_away_with_growing_pauses(database):
    port = free_port()
    core = _core(database, port)
    await core.enqueue_mail(_new())
    queue, pauses = MailQueue(core), []
    for _ in range(4):
        await queue.send_due()
        [(_, _, sent, due)] = core.stored
        pauses.append(due - core.clock.at)
        assert sent == 0
        await queue.send_due()  # not due: nothing is tried
        core.clock.at = due
    assert pauses == [MINUTE, 2 * MINUTE, 4 * MINUTE, 8 * MINUTE]
    [outage] = core.reports  # staff hear of it once
    assert (outage.job, outage.event) == (0, EventType.MAIL_NOTIFICATION_ERROR)
    with _mail_server(port) as box:
        await queue.send_due()
    assert len(box.received) == 1
    assert core.stored == [(1, 5, core.clock.at, core.clock.at)]


@run_async
async def test_a_mail_that_nobody_takes_for_three_days_is_given_up(database):
    core = _core(database, free_port())
    await core.enqueue_mail(_new(job=7))
    core.clock.at += 3 * DAY
    await MailQueue(core).send_due()
    assert core.stored == [(1, 1, core.clock.at, 0)]
    assert [report.event for report in core.reports] == [
        EventType.USER_MAIL_NOTIFICATION, EventType.MAIL_NOTIFICATION_ERROR,
    ]  # fmt: skip


@run_async
async def test_a_refused_address_is_not_tried_again_and_holds_up_nobody(database):
    port = free_port()
    core = _core(database, port)
    await core.enqueue_mail(_new("nobody@lab.org", job=7))
    await core.enqueue_mail(_new("two\nlines@lab.org"))
    await core.enqueue_mail(_new("bob@lab.org"))
    with _mail_server(port) as box:
        await MailQueue(core).send_due()
    assert [letter["To"] for letter in box.received] == ["bob@lab.org"]
    assert [row[:3] for row in core.stored] == [(1, 1, NOW), (2, 1, NOW), (3, 1, NOW)]
    [refusal] = core.reports
    assert (refusal.job, refusal.event) == (7, EventType.USER_MAIL_NOTIFICATION)
    assert "no such user" in refusal.says


@run_async
async def test_a_notice_of_a_job_is_sent_when_the_mail_server_is_back(database):
    port = free_port()
    core = _core(database, port)
    notices = NoticeSender(core.config, core.queue_report, None, None, core.enqueue_mail)
    await notices.send(Notify(7, "ada", "fit", "mail:ada@lab.org", "END", "the job ended", 5))
    assert core.reports == [NotificationSent(5)]
    with _mail_server(port) as box:
        await MailQueue(core).send_due()
    assert box.received[0]["Subject"] == "[OAR] END: job 7 (fit)"
    assert not [report for report in core.reports if isinstance(report, NotificationFailed)]


@run_async
async def test_mails_that_were_sent_are_forgotten_after_ninety_days(database):
    port = free_port()
    core = _core(database, port)
    await core.enqueue_mail(_new())
    with _mail_server(port):
        queue = MailQueue(core)
        await queue.send_due()
        core.clock.at += 91 * DAY
        await core.enqueue_mail(_new())
        await queue.send_due()
    assert [row[0] for row in core.stored] == [2]
