"""Signing in: a link that is good once, a button, a cookie; and what forms must carry."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.web.verbs.users.browser import LINK_SECONDS
from tests.portal.browsing import Visitor, forms, link_of, signed_in
from tests.store.cluster import add_job
from tests.web.nodeless_server import Running, alone

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

USER, OTHER = "nobody", "daemon"


@pytest.fixture
def api(sqlite_path: Path) -> Iterator[Running]:
    with alone(sqlite_path, job_min_uid=1) as running:
        running.core.database.write(lambda tx: add_job(tx, user=USER, uid=65534))
        yield running


def test_a_link_signs_in_once_and_only_when_the_button_is_pressed(api):
    path = f"/{link_of(api, USER)}"
    scanner, visitor, late = Visitor(api.port), Visitor(api.port), Visitor(api.port)
    assert (scanner.get(path).status, scanner.cookies) == (200, {})
    [(action, fields)] = forms(visitor.get(path).text)
    pressed = visitor.post(action, fields)
    assert (pressed.status, pressed.headers["location"]) == (303, "/")
    assert "nobody" in visitor.get("/me").text
    again = late.post(action, fields)
    assert (again.status, late.cookies) == (401, {})
    assert "That link was used already, or is older than a minute." in again.text


def test_a_link_is_good_for_a_minute(api):
    path = link_of(api, USER)
    api.core.clock.at += LINK_SECONDS
    visitor = Visitor(api.port)
    [(action, fields)] = forms(visitor.get(f"/{path}").text)
    assert (visitor.post(action, fields).status, visitor.cookies) == (401, {})


def test_the_cookie_cannot_be_read_by_scripts_nor_sent_by_others(api):
    visitor = Visitor(api.port)
    [(action, fields)] = forms(visitor.get(f"/{link_of(api, USER)}").text)
    cookie = visitor.post(action, fields).headers["set-cookie"]
    assert cookie == f"oarlock={visitor.cookies['oarlock']}; Path=/; Max-Age=604800; HttpOnly; SameSite=Lax"


def test_over_tls_the_cookie_is_bound_to_the_host(sqlite_path):
    with alone(sqlite_path, job_min_uid=1, tls_ended_by_proxy=True) as api:
        visitor = signed_in(api, USER)
        assert list(visitor.cookies) == ["__Host-oarlock"]
        assert "nobody" in visitor.get("/me").text


def test_only_the_hash_of_a_session_is_stored(api):
    visitor = signed_in(api, USER)
    with api.core.database.read() as tx:
        stored = tx.exec_driver_sql("SELECT * FROM browser_sessions").all()
    assert len(stored) == 1
    assert visitor.cookies["oarlock"] not in str(stored)


def test_a_session_is_listed_and_can_be_revoked_from_another_browser(api):
    first, second = signed_in(api, USER), signed_in(api, USER)
    stranger = signed_in(api, OTHER)
    listed = api.client_of(USER).get("/browser/sessions").body["sessions"]
    assert len(listed) == 2
    [(action, fields), _] = [form for form in forms(second.get("/me").text) if form[0] == "/me/revoke"]
    assert second.post(action, fields).status == 303
    assert sorted([first.get("/me").status, second.get("/me").status]) == [200, 401]
    assert stranger.get("/me").status == 200


def test_signing_out_ends_the_session_on_the_server(api):
    visitor = signed_in(api, USER)
    kept = dict(visitor.cookies)
    [(action, fields), *_] = forms(visitor.get("/me").text)
    assert action == "/sign-out"
    assert visitor.post(action, fields).headers["location"] == "/sign-in"
    assert visitor.cookies == {}
    assert Visitor(api.port, kept).get("/me").status == 401


@pytest.mark.parametrize("change", [{"form_token": "0" * 64}, {"form_token": ""}, {"request_id": "0" * 32}])
def test_a_form_needs_the_token_of_its_own_session(api, change):
    visitor = signed_in(api, USER)
    [(action, fields), *_] = forms(visitor.get("/me").text)
    refused = visitor.post(action, fields | change)
    assert (refused.status, visitor.get("/me").status) == (403, 200)
    assert "This form was not made for your session." in refused.text


def test_a_form_of_one_session_does_nothing_in_another(api):
    visitor, other = signed_in(api, USER), signed_in(api, OTHER)
    [(action, fields), *_] = forms(visitor.get("/me").text)
    assert other.post(action, fields).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_form_that_another_site_sends_is_refused(api, site):
    visitor = signed_in(api, USER)
    [(action, fields), *_] = forms(visitor.get("/me").text)
    assert visitor.post(action, fields, Sec_Fetch_Site=site).status == 403
    assert visitor.get("/me").status == 200


def test_a_browser_reads_the_api_with_its_cookie_and_changes_nothing(api):
    visitor = signed_in(api, USER)
    assert '"Job_Id":1' in visitor.get("/api/v1/jobs").text
    assert visitor.get("/api/v1/jobs", Sec_Fetch_Site="cross-site").status == 401
    changed = visitor.post("/api/v1/jobs/delete", {}, Request_Id="x")
    assert changed.status == 401
    assert not [asked for asked in api.core.asked if "kill" in asked]


def test_links_are_made_on_the_socket_alone(api):
    token = api.client_of(USER).post("/tokens", {"name": "x"}).body["token"]
    assert api.client_at_port(token).post("/browser/link", {}).status == 403


def test_a_name_that_another_account_got_since_is_not_signed_in(api):
    visitor = signed_in(api, USER)
    api.core.database.write(lambda tx: tx.exec_driver_sql("UPDATE browser_sessions SET uid = 4711"))
    assert visitor.get("/me").status == 401


@pytest.mark.parametrize("cookie", ["", "x" * 5000, "oarlock", "' OR 1=1 --", "\x80\xff".encode().decode("latin-1")])
def test_a_made_up_cookie_is_nobody(api, cookie):
    assert Visitor(api.port, {"oarlock": cookie}).get("/me").status == 401


def test_without_the_portal_there_are_no_pages(sqlite_path):
    with alone(sqlite_path, job_min_uid=1, portal=False) as api:
        assert Visitor(api.port).get("/").status == 404
        assert api.client_of(USER).post("/browser/link", {}).body["error"] == "This server has no portal."
