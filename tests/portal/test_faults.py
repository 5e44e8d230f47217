"""Pages beside what goes wrong: clocks that are set, nodes renamed, jobs that vanish, viewers that read nothing."""

import os
import socket
import time
from collections.abc import Iterator
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from oarlock.server.http.connection import ConnectionLimits
from oarlock.web.pages import gantt
from oarlock.web.pages.parts import formats, live
from tests.portal.browsing import signed_in
from tests.portal.pages import PAGES
from tests.portal.site import NOW, OWNER, made_up_site
from tests.waiting import wait_until
from tests.web.nodeless_server import Running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

SECOND_HALF_PAST_TWO = 1_792_891_800  # 25 October 2026, 01:30 UTC: for the second time 2:30 in Paris


@pytest.fixture(scope="module")
def site(sqlite_of_module) -> Iterator[Running]:
    with made_up_site(sqlite_of_module, measured=False) as running:
        yield running


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    yield monkeypatch
    monkeypatch.undo()
    _set_clock()


def _in(zone: pytest.MonkeyPatch, name: str) -> None:
    zone.setenv("TZ", name)
    _set_clock()


def _set_clock() -> None:
    time.tzset()
    for cached in (formats._local, gantt._has_change, gantt._offset_of_day):
        cached.cache_clear()


def test_instants_of_a_chart_are_those_of_the_clock_in_every_zone(zone):
    _in(zone, "Europe/Paris")
    for hours in range(-40, 40):
        at = SECOND_HALF_PAST_TWO + 3600 * hours
        paris = datetime.fromtimestamp(at, ZoneInfo("Europe/Paris"))
        expected = f"{paris:%Y-%m-%d %H:%M}" + (f" {paris:%Z}" if hours in {-1, 0} else "")
        assert (gantt._written(at, ""), gantt._written(at, "Europe/Paris")) == (expected, expected)
    for at in range(NOW, NOW + 400 * 86_400, 54_321):
        there = datetime.fromtimestamp(at, ZoneInfo("Asia/Kathmandu"))
        assert gantt._written(at, "Asia/Kathmandu") == f"{there:%Y-%m-%d %H:%M}"


def test_an_hour_that_comes_twice_is_written_with_its_zone(zone):
    _in(zone, "Europe/Paris")
    night = [SECOND_HALF_PAST_TWO + hour * 3600 for hour in (-2, -1, 0, 1)]
    assert [formats.clock(at, NOW) for at in night] == [
        "25 Oct 01:30", "25 Oct 02:30 CEST", "25 Oct 02:30 CET", "25 Oct 03:30",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["America/New_York", "Europe/Paris", "Pacific/Auckland"])
def test_the_sums_of_a_day_have_the_same_date_wherever_the_server_is(zone, name):
    _in(zone, name)
    midnight = 1_793_577_600  # 2 November 2026 in UTC, where days of sums begin
    assert (formats.day(midnight), formats.month_and_day(midnight)) == ("2026-11-02", "02 Nov")


@pytest.mark.parametrize("zone_name", ["Europe/Paris", "UTC", "America/New_York", ""])
def test_a_chart_of_the_night_when_clocks_are_set_is_drawn_in_every_zone(site, zone_name):
    visitor = signed_in(site, OWNER)
    since, until = SECOND_HALF_PAST_TWO - 6 * 3600, SECOND_HALF_PAST_TWO + 6 * 3600
    seen = visitor.get(f"/gantt?since={since}&until={until}&zone={zone_name}")
    assert (seen.status, 'class="g-time"' in seen.text) == (200, True)


def test_pages_are_shown_when_the_clock_was_set_back(site):
    visitor = signed_in(site, OWNER)
    site.core.clock.at = NOW - 3 * 86_400  # before every job began; the session began later, too
    try:
        shown = {path: visitor.get(path).status for path in PAGES}
    finally:
        site.core.clock.at = NOW
    assert set(shown.values()) <= {200, 404}
    assert shown["/"] == shown["/jobs"] == shown["/jobs/1"] == shown["/gantt"] == 200


def test_a_renamed_node_and_a_job_that_vanished_leave_the_other_pages(sqlite_path):
    with made_up_site(sqlite_path, measured=False) as site:
        visitor = signed_in(site, OWNER)

        def change(tx):
            tx.exec_driver_sql("UPDATE resources SET network_address = 'new-01' WHERE network_address = 'node-01'")
            for table in ("jobs", "job_types"):
                tx.exec_driver_sql(f"DELETE FROM {table} WHERE job_id IN (1, 75)")

        site.core.database.write(change)
        site.core.changes += 1
        shown = {path: visitor.get(path).status for path in PAGES}
        gone = {"/jobs/1", "/jobs/75", "/compare?ids=75,77,79", "/nodes/node-01"}
        assert {path for path, status in shown.items() if status == 404} == gone
        assert set(shown.values()) == {200, 404}
        assert visitor.get("/nodes/new-01").status == 200


def test_a_viewer_who_reads_nothing_is_dropped(sqlite_path, monkeypatch):
    monkeypatch.setattr(live, "LEAST_SECONDS", 0.01)
    monkeypatch.setattr(live, "COST", 0.0)
    limits = ConnectionLimits(answer_seconds=0.2)
    with made_up_site(sqlite_path, measured=False, limits=limits) as site, socket.socket(socket.AF_UNIX) as viewer:
        viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        viewer.connect(str(site.socket))
        viewer.sendall(b"GET /live/overview HTTP/1.1\r\nHost: x\r\n\r\n")

        def is_dropped() -> bool:
            site.core.clock.at += 60  # every event differs from the one before
            site.core.changes += 1
            return limits.in_all == 0

        wait_until(lambda: limits.in_all == 1)
        wait_until(is_dropped)
