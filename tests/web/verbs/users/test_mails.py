"""Mails that nobody asks for: digests, when and to whom they go, and how they are refused."""

import asyncio
import email
import email.policy
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from oarlock.cli import oarlock as command
from oarlock.config import Config
from oarlock.insight.days import is_working_hour, last_month, last_week
from oarlock.insight.digests import due_digests
from oarlock.server.mailing.digests import DigestSender
from oarlock.server.mailing.mail_queue import MailQueue
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.users import mails
from tests.clusters import add_nodes
from tests.server.mailing.test_mail_queue import _mail_server, free_port
from tests.web.measured_jobs import DAY, HOUR, ran
from tests.web.nodeless_server import NOW, Running, StillClock, running

MONDAY = 4 * DAY  # 5 January 1970
SETTINGS = {
    "mail_digests": True,
    "mail_recipient": ("staff@lab.org",),
    "mail_user_domain": "lab.org",
    "mail_sender": "oar@lab.org",
    "mail_smtp_server": "127.0.0.1:9",
    "portal_url": "https://oar.lab.org",
}


def _fill(tx: Tx) -> None:
    """Add jobs of the week before NOW (Monday, 12 January): daemon wasted half, nobody nothing."""
    cores = add_nodes(tx, ["n1"])[:2]
    ran(tx, cores, "nobody", busy=1.0, ago=3 * DAY)
    ran(tx, cores, "daemon", busy=0.2, ago=3 * DAY, name="<b>mine</b>")


@dataclass
class _Core:
    """As much of a server as digests need."""

    database: Database
    config: Config
    clock: StillClock = field(default_factory=StillClock)
    reports: list[Any] = field(default_factory=list)

    async def read(self, question):
        with self.database.read() as tx:
            return question(tx)

    async def write(self, change):
        return await asyncio.wrap_future(self.database.submit(change))

    def queue_report(self, report) -> None:
        self.reports.append(report)

    def stored(self) -> list[tuple[str, str]]:
        with self.database.read() as tx:
            return sorted((mail.rule, mail.address) for mail in mails.last(tx, most=99))


@pytest.fixture
def core(database: Database, monkeypatch) -> _Core:
    monkeypatch.setenv("TZ", "UTC")
    database.write(_fill)
    return _Core(database, Config(**SETTINGS))


def test_a_week_of_digests_is_stored_once(core: _Core):
    sender = DigestSender(core)
    asyncio.run(sender.store_due())
    expected = [("digest.week", "daemon@lab.org"), ("staff.week", "staff@lab.org")]
    assert core.stored() == expected, "nobody had nothing to be told; in December nothing ran"
    asyncio.run(sender.store_due())
    asyncio.run(DigestSender(core).store_due())
    assert core.stored() == expected, "a restart sends nothing twice"
    core.clock.at = NOW + 22 * DAY  # Tuesday, 3 February: a new month, and a week without jobs
    asyncio.run(sender.store_due())
    assert core.stored() == sorted([*expected, ("staff.month", "staff@lab.org")])


def test_each_leader_of_a_project_gets_its_month(core: _Core, tmp_path: Path):
    addresses = tmp_path / "addresses"
    addresses.write_text("# leaders\neve: eve.adams@dept.lab.org\nnonsense\nmal <mal@x>\n")
    leaders = {"physics": ("eve", "bob"), "idle": ("eve",)}
    core.config = Config(**SETTINGS | {"project_leaders": leaders, "mail_addresses": addresses, "mail_user_domain": ""})
    core.clock.at = NOW + 22 * DAY  # a new month, in which `idle` had nothing
    asyncio.run(DigestSender(core).store_due())
    asyncio.run(DigestSender(core).store_due())
    assert core.stored() == [("leader.month.physics", "eve.adams@dept.lab.org"), ("staff.month", "staff@lab.org")]
    with core.database.read() as tx:
        [mail] = [mail for mail in mails.last(tx, most=9) if mail.user == "eve"]
    assert mail.subject == f"[OAR] Project physics on {core.config.cluster_name} last month"
    assert "Users" in mail.html
    assert "oarlock mail --off month" in mail.body
    core.database.write(lambda tx: mails.refuse_kind(tx, "eve", "month", now=NOW))
    with core.database.read() as tx:
        again = due_digests(tx, core.config, now=core.clock.at, again=True)
    assert [digest.rule for digest in again if digest.user == "eve"] == []


def test_nothing_is_stored_outside_working_hours(core: _Core):
    for at in (MONDAY + 7 * DAY + 8 * HOUR, MONDAY + 7 * DAY + 17 * HOUR, MONDAY + 12 * DAY + 12 * HOUR):
        core.clock.at = at
        asyncio.run(DigestSender(core).store_due())
    assert core.stored() == []
    core.clock.at = MONDAY + 7 * DAY + 9 * HOUR
    asyncio.run(DigestSender(core).store_due())
    assert len(core.stored()) == 2


def test_who_refused_the_digest_gets_none(core: _Core):
    core.database.write(lambda tx: mails.refuse_kind(tx, "daemon", "week", now=NOW))
    asyncio.run(DigestSender(core).store_due())
    assert core.stored() == [("staff.week", "staff@lab.org")]


def test_users_without_an_address_get_none(core: _Core):
    core.config = Config(**SETTINGS | {"mail_user_domain": ""})
    asyncio.run(DigestSender(core).store_due())
    assert core.stored() == [("staff.week", "staff@lab.org")]


@pytest.fixture
def api(database: Database, monkeypatch) -> Iterator[Running]:
    monkeypatch.setenv("TZ", "UTC")
    database.write(_fill)
    with running(database, **SETTINGS) as api:
        yield api


def test_a_digest_has_text_html_and_a_link_that_works(database: Database, monkeypatch):
    """Send a digest to a real mail server, then press the button that mail programs make of its header."""
    monkeypatch.setenv("TZ", "UTC")
    database.write(_fill)
    port = free_port()
    settings = SETTINGS | {"mail_smtp_server": f"127.0.0.1:{port}"}
    with _mail_server(port) as box:
        core = _Core(database, Config(**settings))
        asyncio.run(DigestSender(core).store_due())
        asyncio.run(MailQueue(core).send_due())
    by_address = {message["To"]: message for message in box.received}
    digest, staff = by_address["daemon@lab.org"], by_address["staff@lab.org"]
    assert digest["Subject"] == "[OAR] Your jobs of last week on cluster: 1 things to look at"
    text, html = (digest.get_body((kind,)).get_content() for kind in ("plain", "html"))
    assert "cpu.low" in text
    assert "cpu.low" in html
    assert "<b>mine</b>" not in html, "what users wrote is escaped"
    assert "&lt;b&gt;mine" in html
    assert staff["List-Unsubscribe"] is None
    assert digest["List-Unsubscribe-Post"] == "List-Unsubscribe=One-Click"
    link = urlsplit(re.fullmatch(r"<https://oar.lab.org(/unsubscribe\?.*)>", digest["List-Unsubscribe"])[1])
    with running(database, **settings) as api:
        shown = _browse(api, "GET", f"{link.path}?{link.query}")
        wrong = _browse(api, "POST", f"{link.path}?{link.query.replace('daemon', 'nobody')}", b"")
        nothing = _browse(api, "POST", link.path, b"")
        untouched = database.read
        with untouched() as tx:
            assert mails.refusing(tx, "week") == frozenset(), "looking at a link changes nothing"
        pressed = _browse(api, "POST", f"{link.path}?{link.query}", b"List-Unsubscribe=One-Click")
    assert [shown, wrong, nothing, pressed] == [200, 403, 403, 200]
    with database.read() as tx:
        assert mails.refusing(tx, "week") == frozenset({"daemon"})
        assert [digest.user for digest in due_digests(tx, core.config, now=NOW + 7 * DAY)] == [
            "staff@lab.org",
            "staff@lab.org",
        ]


def _browse(api: Running, method: str, path: str, content: bytes | None = None) -> int:
    with api.client_at_port().connected() as connection:
        headers = {} if content is None else {"Content-Type": "application/x-www-form-urlencoded"}
        connection.request(method, path, content, headers)
        reply = connection.getresponse()
        reply.read()
        return reply.status


def test_choices_are_ones_own_and_bad_kinds_are_refused(api: Running):
    client = api.client
    before = client.get("/mail/choices").body
    assert before["address"] == f"{before['address'].partition('@')[0]}@lab.org"
    assert [(choice["kind"], choice["wanted"]) for choice in before["choices"]] == [
        ("week", True),
        ("month", True),
        ("advice", True),
    ]
    assert client.post("/mail/choices", {"kind": "week", "wanted": False}).status == 200
    after = client.get("/mail/choices").body["choices"]
    assert [choice["wanted"] for choice in after] == [False, True, True]
    for bad in ({"kind": "all", "wanted": False}, {"kind": "week"}, {"kind": "week", "wanted": "'; --"}, {}):
        assert client.post("/mail/choices", bad).status == 400
    assert command.main(["mail", "--server", str(api.socket), "--on", "week", "--off", "advice"]) == 0
    after = client.get("/mail/choices").body["choices"]
    assert [choice["wanted"] for choice in after] == [True, True, False]


def test_a_dry_run_writes_mails_and_sends_none(api: Running, tmp_path: Path, capsys):
    folder = tmp_path / "mails"
    folder.mkdir()
    assert command.main(["digest", "--server", str(api.socket), "--dry-run", str(folder)]) == 0
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["digest.week.daemon.eml", "staff.week.staff@lab.org.eml"]
    message = email.message_from_bytes((folder / files[0]).read_bytes(), policy=email.policy.default)
    assert message["To"] == "daemon@lab.org"
    assert message["List-Unsubscribe"].startswith("<https://oar.lab.org/unsubscribe?user=daemon&kind=week&key=")
    with api.core.database.read() as tx:
        assert mails.last(tx, most=9) == []
    assert command.main(["digest", "--server", str(api.socket), "--dry-run", str(tmp_path / "missing")]) != 0
    assert "is not a directory" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_only_administrators_see_digests_of_others(api: Running):
    assert api.client_of("daemon").post("/digests/preview", {}).body["kind"] == "Forbidden"


def test_the_last_week_and_month_are_whole_ones():
    assert last_week(MONDAY + 7 * DAY).since == MONDAY
    assert last_week(MONDAY + 14 * DAY - 1) == last_week(MONDAY + 7 * DAY)
    assert last_week(MONDAY + 14 * DAY).since == MONDAY + 7 * DAY
    january = last_month(1_772_000_000)  # 25 February 2026
    assert [(january.until - january.since) // DAY, (january.since - january.before) // DAY] == [31, 31]


def test_working_hours_end_when_the_second_hour_begins(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    hours = [hour for hour in range(24) if is_working_hour(MONDAY + hour * HOUR, "9-17")]
    assert hours == list(range(9, 17))
    assert not any(is_working_hour(MONDAY + day * DAY + 12 * HOUR, "0-24") for day in (5, 6))
