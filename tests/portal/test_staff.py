"""What staff do in the portal: notices to all, rules tried on last week, the audit, waste set aside or told by mail."""

import os
from collections.abc import Iterator
from urllib.parse import quote

import pytest

from oarlock.store.queries.users import mails
from tests.portal.browsing import Visitor, forms, signed_in
from tests.portal.site import made_up_site
from tests.web.nodeless_server import Running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

MAIL = {"mail_smtp_server": "localhost", "mail_user_domain": "lab.org", "mail_hours": "0-24"}
RULE = """[[rule]]
name = "no renders"
when = "name = 'render'"
reject = "Not here."

[[rule]]
name = "to the night"
when = "name = 'align'"
set = { queue = "night" }
"""


@pytest.fixture(scope="module")
def site(sqlite_of_module) -> Iterator[Running]:
    with made_up_site(sqlite_of_module, support=("daemon",), **MAIL) as running:
        yield running


@pytest.fixture(scope="module")
def admin(site: Running) -> Visitor:
    return signed_in(site, "root")


@pytest.fixture(scope="module")
def support(site: Running) -> Visitor:
    return signed_in(site, "daemon")


def sent(visitor: Visitor, page: str, to: str, **fields: str) -> str:
    """Fill in a form of a page and send it; return the page that follows. Forms that remove something are left out."""
    found = [form for action, form in forms(visitor.get(page).text) if action == to and "remove" not in form]
    reply = visitor.post(to, found[0] | fields)
    if reply.status != 303:
        return reply.text
    return visitor.get(reply.headers["location"].partition("#")[0]).text


def test_administration_is_for_administrators_alone(site, admin, support):
    assert admin.get("/admin").status == 200
    assert support.get("/admin").status == 403
    assert "/admin" not in support.get("/jobs").text
    assert 'href="/admin"' in admin.get("/jobs").text


def test_a_notice_is_on_every_page_until_it_is_taken_away(site, admin, support):
    text = "Power cut <b>tonight</b> & tomorrow"
    sent(admin, "/admin", "/admin/notices", says=text, hours="4")
    assert "Power cut &lt;b&gt;tonight&lt;/b&gt; &amp; tomorrow" in support.get("/jobs").text
    [remove, *_] = [form for action, form in forms(admin.get("/admin").text) if "remove" in form]  # newest first
    admin.post("/admin/notices", remove)
    assert "Power cut" not in support.get("/jobs").text


def test_rules_are_tried_on_last_week_and_nothing_is_stored(site, admin):
    page = sent(admin, "/admin", "/admin/rules", rule=RULE)
    assert "jobs of last week:" in page
    assert "Not here." in page
    assert "queue: default → night" in page
    assert "the table" in page
    assert admin.get("/api/v1/rules").text == '{"rules":[]}'


@pytest.mark.parametrize(
    "rule", ["x", "[[rule]]", "[[rule]]\nname='x'\nwhen=\"user IN FILE '/no/such/file'\"\nreject='y'"]
)
def test_a_rule_that_does_not_work_is_refused_with_a_sentence(site, admin, rule):
    assert "There" in (page := sent(admin, "/admin", "/admin/rules", rule=rule)) or "rule" in page
    assert "jobs of last week:" not in page


def test_the_audit_shows_what_pages_changed(site, admin):
    sent(admin, "/admin", "/admin/notices", says="for the audit", hours="4")
    page = admin.get("/admin?check=1&by=root").text
    assert "nobody changed it" in page
    assert "for the audit" in page
    assert "<td>browser</td>" in page
    assert "for the audit" not in admin.get("/admin?by=daemon").text.partition('id="audit"')[2]


def test_waste_is_shown_by_kind_and_set_aside_with_a_reason(site, support):
    page = support.get("/waste").text
    assert 'id="kind-cpu"' in page or 'id="kind-memory"' in page or 'id="kind-serial"' in page
    [first, *_] = [form for action, form in forms(page) if form.get("do") == "snooze"]
    rule, user = first["rule"], first["user"]
    after = sent_form(support, first | {"reason": "a test run, agreed", "days": "7"})
    assert "a test run, agreed" in after
    again = [form for _, form in forms(after) if form.get("do") == "snooze"]
    assert not [form for form in again if (form["rule"], form["user"]) == (rule, user)]
    [back] = [form for _, form in forms(after) if "unsnooze" in form]
    assert "a test run, agreed" not in sent_form(support, back)


def sent_form(visitor: Visitor, fields: dict[str, str]) -> str:
    reply = visitor.post("/waste/act", fields)
    assert reply.status == 303
    return visitor.get(reply.headers["location"].partition("#")[0]).text


def test_advice_is_sent_once_a_week_and_its_effect_is_shown(site, support):
    [first, *_] = [form for _, form in forms(support.get("/waste").text) if form.get("do") == "advise"]
    page = sent_form(support, first)
    assert f"{first['user']}@lab.org" in page
    assert "What mails changed" in page
    with site.core.database.read() as tx:
        [mail] = mails.last(tx, most=1)
    assert (mail.rule, mail.user) == (f"advice.{first['rule']}", first["user"])
    assert "daemon of the staff sent this." in mail.body
    [second, *_] = [
        form
        for _, form in forms(support.get("/waste").text)
        if form.get("do") == "advise" and (form["rule"], form["user"]) == (first["rule"], first["user"])
    ]
    refused = support.post("/waste/act", second)
    assert (refused.status, "less than a week ago" in refused.text) == (403, True)


def test_who_does_not_want_advice_gets_none(site, support):
    [form, *_] = [form for _, form in forms(support.get("/waste").text) if form.get("do") == "advise"]
    user = site.client_of(form["user"])
    user.post("/mail/choices", {"kind": "advice", "wanted": False})
    refused = support.post("/waste/act", form)
    user.post("/mail/choices", {"kind": "advice", "wanted": True})
    assert (refused.status, "does not want such mails" in refused.text) == (403, True)
    assert site.client_of("daemon").post("/advice", {"rule": "no.such", "user": "games"}).status == 404


def test_the_worst_jobs_are_ordered_by_energy_as_well(site, support):
    by_cores = site.client_of("daemon").get("/waste").body["jobs"]
    by_energy = site.client_of("daemon").get("/waste?order=energy").body["jobs"]
    lost = [job["energy_joules"] * (1 - job["cpu_seconds"] / job["core_seconds"]) for job in by_energy]
    assert lost == sorted(lost, reverse=True)
    assert len(by_cores) >= len(by_energy) > 0
    assert support.get("/waste?order=energy").status == 200


NONSENSE = ("'", '"><script>alert(1)</script>', "9" * 30, "-1", "a" * 3000, "{{ 7 * 7 }}", "٣")
PARAMETERS = (
    "/admin?by=", "/admin?job=", "/admin?limit=", "/admin?check=", "/waste?days=", "/waste?order=", "/waste?done=",
    "/compare?ids=72,73&metric=", "/users/daemon?days=", "/users/", "/projects/", "/jobs/1/output?stream=",
    "/shared/", "/nodes/", "/jobs.json?order=", "/gantt?where=", "/gantt?open=", "/gantt?zone=",
    "/sign-in/oidc/back?code=",
)  # fmt: skip


def test_nonsense_in_an_address_is_answered_with_a_page(site, admin):
    for start in PARAMETERS:
        for value in NONSENSE:
            seen = admin.get(start + quote(value))
            assert (start, value, seen.status in {200, 303, 400, 404, 413}) == (start, value, True)
            assert "<script>alert" not in seen.text


CHANGES = (
    "/admin/notices", "/admin/rules", "/waste/act", "/jobs/views", "/jobs/act", "/jobs/1/share", "/me/revoke",
    "/me/mail",
    "/nodes/node-01/drain",
)  # fmt: skip


def test_no_form_is_taken_without_the_token_of_its_session(site, admin):
    before = site.client_of("root").get("/audit?limit=1000").body["changes"]
    for path in CHANGES:
        fields = {"says": "x", "rule": "x", "user": "games", "do": "advise", "name": "x", "query": "", "id": "1"}
        assert (path, admin.post(path, fields).status) == (path, 403)
        forged = fields | {"request_id": "0" * 32, "form_token": "0" * 64}
        assert (path, admin.post(path, forged).status) == (path, 403)
        assert (path, admin.post(path, forged, Sec_Fetch_Site="cross-site").status) == (path, 403)
    assert site.client_of("root").get("/audit?limit=1000").body["changes"] == before
