"""Links by which a job is shown to people without an account, and lists of jobs that users keep."""

import logging
import os
import re
from collections.abc import Iterator

import pytest

from tests.portal.browsing import Visitor, forms, signed_in
from tests.portal.site import NOW, OWNER, made_up_site
from tests.web.nodeless_server import Running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

OWN, OTHERS = 1, 2  # jobs that run


@pytest.fixture(scope="module")
def site(sqlite_of_module) -> Iterator[Running]:
    with made_up_site(sqlite_of_module, job_visibility="own") as running:
        yield running


@pytest.fixture
def owner(site: Running) -> Iterator[Visitor]:
    site.core.clock.at = NOW
    yield signed_in(site, OWNER)
    site.core.clock.at = NOW


def shared(owner: Visitor, *, days: str = "7") -> str:
    """Share a job from its page; return the path of the link."""
    [fields] = [form for action, form in forms(owner.get(f"/jobs/{OWN}").text) if action == f"/jobs/{OWN}/share"]
    page = owner.post(f"/jobs/{OWN}/share", fields | {"days": days})
    assert page.status == 200
    return "/" + re.search(r"(shared/[\w-]+)", page.text)[1]


def test_a_link_shows_one_job_without_its_script(site, owner):
    job = site.client_of(OWNER).get(f"/jobs/{OWN}").body
    anybody = Visitor(site.port)
    seen = anybody.get(shared(owner))
    assert (seen.status, f"Job {OWN}" in seen.text, "<svg" in seen.text) == (200, True, True)
    for secret in (job["command"], job["launchingDirectory"]):
        assert secret not in seen.text
    assert anybody.get(f"/jobs/{OWN}").status == 401
    assert anybody.get(f"/api/v1/jobs/{OWN}").status == 401
    assert anybody.get(f"/jobs/{OWN}/plots.json").status == 401


def test_each_use_of_a_link_is_counted_and_logged(site, owner, caplog):
    caplog.set_level(logging.INFO)
    path = shared(owner)
    for _ in range(2):
        Visitor(site.port).get(path)
    newest = site.client_of(OWNER).get("/shares").body["shares"][0]
    uses = [share["uses"] for share in site.client_of(OWNER).get("/shares").body["shares"] if share["uses"] == 2]
    assert (uses, newest["job"]) == ([2], OWN)
    assert [(record.job, record.use) for record in caplog.records if "was opened" in record.message] == [
        (OWN, 1), (OWN, 2),
    ]  # fmt: skip
    assert path.rpartition("/")[2] not in caplog.text


def test_a_link_ends_with_its_days_or_when_it_is_revoked(site, owner):
    path, other = shared(owner, days="1"), shared(owner, days="30")
    site.core.clock.at = NOW + 86_400
    assert (Visitor(site.port).get(path).status, Visitor(site.port).get(other).status) == (404, 200)
    for share in site.client_of(OWNER).get("/shares").body["shares"]:
        assert site.client_of(OWNER).delete(f"/shares/{share['id']}").status == 200
    assert Visitor(site.port).get(other).status == 404


def test_a_link_is_good_for_thirty_days_at_most(site, owner):
    assert site.client_of(OWNER).post("/shares", {"job": OWN, "days": 31}).status == 400
    assert site.client_of(OWNER).post("/shares", {"job": OWN, "days": 0}).status == 400


def test_nobody_shares_or_revokes_what_is_anothers(site, owner):
    assert site.client_of("daemon").post("/shares", {"job": OWN}).status == 404
    shared(owner)
    [share, *_] = site.client_of(OWNER).get("/shares").body["shares"]
    assert site.client_of("daemon").get("/shares").body == {"shares": []}
    assert site.client_of("daemon").delete(f"/shares/{share['id']}").status == 404


def test_only_the_hash_of_a_link_is_stored(site, owner):
    secret = shared(owner).rpartition("/")[2]
    with site.core.database.read() as tx:
        for table in ("job_shares", "audit", "request_ids"):
            assert secret not in str(tx.exec_driver_sql(f"SELECT * FROM {table}").all())


def test_a_made_up_link_leads_nowhere(site):
    for secret in ("x", "' OR 1=1 --", "%00", "x" * 5000, "..%2f..%2fetc%2fpasswd"):
        assert Visitor(site.port).get(f"/shared/{secret.replace(' ', '+')}").status in {400, 404}


def test_a_list_is_kept_under_a_name_and_forgotten(site, owner):
    address = f"/jobs?user={OWNER}&show=over&order=-start"
    [fields] = [form for action, form in forms(owner.get(address).text) if action == "/jobs/views"]
    kept = owner.post("/jobs/views", fields | {"name": " my <old>  jobs "})
    assert kept.status == 303
    page = owner.get(kept.headers["location"]).text
    assert f'href="/jobs?user={OWNER}&amp;show=over&amp;order=-start"' in page
    assert "my &lt;old&gt; jobs" in page
    assert site.client_of("daemon").get("/views").body == {"views": []}
    [forget] = [form for action, form in forms(page) if "forget" in form]
    assert owner.post("/jobs/views", forget).status == 303
    assert "my <old> jobs" not in [kept["name"] for kept in site.client_of(OWNER).get("/views").body["views"]]


def test_what_is_kept_is_filters_and_order_alone(site, owner):
    [fields] = [form for action, form in forms(owner.get("/jobs?user=nobody").text) if action == "/jobs/views"]
    evil = "user=nobody&after=7&x=1&back=//evil.example"
    moved = owner.post("/jobs/views", fields | {"name": "n", "query": evil})
    assert moved.headers["location"] == "/jobs?user=nobody"
    assert site.client_of(OWNER).get("/views").body["views"].count({"name": "n", "query": "user=nobody"}) == 1


def test_the_list_is_downloaded_as_json(site, owner):
    seen = owner.get("/jobs.json?show=all")
    assert (seen.status, seen.headers["content-type"]) == (200, "application/json")
    assert '"owner":"daemon"' not in seen.text
    assert '"owner":"nobody"' in seen.text
