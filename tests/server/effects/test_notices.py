"""What users are told of their jobs: what stands in it, how much of it there is, and what happens when it fails."""

import asyncio

import pytest

from oarlock.config import Config
from oarlock.insight.mails import build_mail as mail
from oarlock.job.run.effects import Notify
from oarlock.job.run.reports import NotificationFailed, NotificationSent
from oarlock.model.errors import NodeUnreachable
from oarlock.model.event import EventType
from oarlock.node.attempt.user.notice import Notice
from oarlock.server.effects.notices import NoticeSender
from tests.bed import run_async
from tests.server.post_office import post_office

NOTICE = Notify(7, "ada", "fit", "mail:ada@lab.org", "END", "the job ended", 5)
PROGRAM = Notify(7, "ada", "it's $(x); *", "exec:/opt/tell -v 'two words'", "START", "its command runs on `n1`", 6)


async def _nobody(notice):
    raise AssertionError(notice)


async def _no_report(job):
    raise AssertionError(job)


@pytest.mark.manual(143, 166, 198)
@run_async
async def test_a_mail_reaches_the_mail_server_and_a_flood_does_not():
    heard = []
    with post_office() as post:
        config = Config(mail_smtp_server=post.place, mail_sender="oar@lab.org")
        notices = NoticeSender(config, heard.append, _nobody, _no_report)
        for _ in range(35):
            await notices.send(NOTICE)
    assert (len(post.mails), heard) == (30, [NotificationSent(5)] * 35)
    assert "Subject: [OAR] END: job 7 (fit)" in post.mails[0]
    assert "Job 7 (fit) of ada: the job ended" in post.mails[0]


@run_async
async def test_who_wants_a_report_gets_it_in_the_mail_of_the_end():
    async def report(job):
        return f"  Cores of job {job}: 50 %\n"

    heard = []
    with post_office() as post:
        notices = NoticeSender(Config(mail_smtp_server=post.place), heard.append, _nobody, report)
        await notices.send(Notify(7, "ada", "fit", "mail:ada@lab.org", "REPORT", "the job ended", 5))
    assert "Subject: [OAR] REPORT: job 7 (fit)" in post.mails[0]
    assert "Job 7 (fit) of ada: the job ended\n\n  Cores of job 7: 50 %" in post.mails[0].replace("\r", "")
    assert heard == [NotificationSent(5)]


@pytest.mark.manual(143)
@run_async
async def test_without_a_mail_server_the_job_has_an_event():
    heard = []
    await NoticeSender(Config(), heard.append, _nobody, _no_report).send(NOTICE)
    says = "a mail to ada@lab.org could not be sent: no MAIL_SMTP_SERVER is set"
    assert heard == [NotificationFailed(7, EventType.USER_MAIL_NOTIFICATION, says), NotificationSent(5)]


def test_a_name_cannot_add_a_line_to_the_head_of_a_mail():
    with pytest.raises(ValueError, match=r"(?i)newline|linefeed"):
        mail(["ada@lab.org\nBcc: all@lab.org"], "END", "", sender="oar@lab.org")


@pytest.mark.manual(198)
@run_async
async def test_a_program_gets_its_own_arguments_and_then_those_of_the_manual():
    asked, heard = [], []

    async def run(notice):
        asked.append(notice)
        return ""

    await NoticeSender(Config(), heard.append, run, _no_report).send(PROGRAM)
    about = ("7", "it's $(x); *", "START", "its command runs on `n1`")
    assert asked == [Notice(7, "ada", "/opt/tell", ("-v", "two words", *about))]
    assert heard == [NotificationSent(6)]


@pytest.mark.manual(143)
@pytest.mark.parametrize("problem", ["/opt/tell ended with status 3", NodeUnreachable("front", "no answer")])
@run_async
async def test_a_program_that_fails_is_an_event_of_the_job(problem):
    heard = []

    async def run(_):
        if isinstance(problem, str):
            return problem
        raise problem

    await NoticeSender(Config(), heard.append, run, _no_report).send(PROGRAM)
    assert heard == [NotificationFailed(7, EventType.USER_EXEC_NOTIFICATION_ERROR, str(problem)), NotificationSent(6)]


@run_async
async def test_programs_of_one_user_run_one_after_the_other():
    heard, running, most, ran = [], set(), 0, []
    slow = asyncio.Event()

    async def run(notice):
        nonlocal most
        assert notice.user not in running
        running.add(notice.user)
        most = max(most, len(running))
        if notice.user == "ada":
            await slow.wait()
        running.discard(notice.user)
        ran.append(notice.user)
        return ""

    notices = NoticeSender(Config(), heard.append, run, _no_report)
    flood = [asyncio.create_task(notices.send(PROGRAM)) for _ in range(1002)]
    await asyncio.sleep(0)  # all of them ask before bob does
    await notices.send(Notify(8, "bob", "", "exec:/opt/tell", "END", "", 9))
    assert ran == ["bob"]
    slow.set()
    await asyncio.gather(*flood)
    assert (len(ran), most) == (1001, 2)
    says = "1000 programs of ada wait already"
    given_up = NotificationFailed(7, EventType.USER_EXEC_NOTIFICATION_ERROR, says)
    assert (heard.count(given_up), heard.count(NotificationSent(6)), heard.count(NotificationSent(9)), len(heard)) == (
        2,
        1002,
        1,
        1005,
    )


@run_async
async def test_a_notice_that_is_cut_off_is_not_done_with():
    heard, began = [], asyncio.Event()

    async def run(_):
        began.set()
        await asyncio.Event().wait()

    sending = asyncio.create_task(NoticeSender(Config(), heard.append, run, _no_report).send(PROGRAM))
    await began.wait()
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    assert heard == []
