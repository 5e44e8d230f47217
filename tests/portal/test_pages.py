"""What pages show and do, read as text: lists, a job, nodes, search, actions; and what bad input gets."""

import csv
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from oarlock.measure.collect.series import MOST_CURVES, USUAL_JOB
from oarlock.model.errors import DatabaseAway
from oarlock.web.pages import gantt
from oarlock.web.pages.job import drawn_metrics
from oarlock.web.pages.parts.formats import exact
from tests.portal.browsing import Seen, Visitor, forms, signed_in
from tests.portal.pages import PAGES
from tests.portal.site import NODES, OWNER, made_up_site
from tests.web.nodeless_server import Running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")


@pytest.fixture(scope="module")
def site(sqlite_of_module) -> Iterator[Running]:
    with made_up_site(sqlite_of_module) as running:
        yield running


@pytest.fixture(scope="module")
def visitor(site: Running) -> Visitor:
    return signed_in(site, OWNER)


def _ids(seen: Seen) -> list[int]:
    return [int(number) for number in re.findall(r'<td><a href="/jobs/(\d+)">', seen.text)]


def test_every_page_has_the_headers_that_forbid_the_rest(visitor):
    policy = (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    )
    for path in [*PAGES, "/sign-in", "/no-such-page", "/assets/nothing.js"]:
        headers = visitor.get(path).headers
        found = [headers[name] for name in ("content-security-policy", "x-content-type-options", "referrer-policy")]
        assert found == [policy, "nosniff", "no-referrer"], path


def test_no_page_has_a_style_attribute_or_a_script_in_it(visitor):
    for path in PAGES:
        text = visitor.get(path).text
        assert re.findall(r'\sstyle="|<script(?![^>]*src=)|\son\w+="', text) == [], path


def test_a_page_is_small_and_its_files_are_cached_for_ever(visitor):
    first = visitor.get("/", Accept_Encoding="identity")
    files = re.findall(r'(?:href|src)="(/assets/[^"]+)"', first.text)
    assert len(files) == 3
    for path in files:
        asset = visitor.get(path)
        assert (asset.status, asset.headers["cache-control"]) == (200, "public, max-age=31536000, immutable"), path
    assert sum(len(visitor.get(path).text) for path in files) < 60_000


def test_the_overview_counts_what_oarnodes_counts(site, visitor):
    listed = site.client_of(OWNER).get("/resources").body
    alive = sum(row["state"] == "Alive" for row in listed["resources"])
    shown = site.client_of(OWNER).get("/overview").body
    assert shown["cores"]["total"] == len(listed["resources"])
    assert shown["cores"]["held"] == len(listed["jobs"])
    assert len(shown["nodes"]) == NODES
    states = {node["name"]: node["state"] for node in shown["nodes"]}
    assert [states[name] for name in ("node-05", "node-09", "node-10", "node-14", "node-17", "node-01")] == [
        "suspected", "absent", "standby", "dead", "drain", "alive",
    ]  # fmt: skip
    drained = sum(node["cores"] - node["held"] for node in shown["nodes"] if node["state"] == "drain")
    sleeping = sum(node["cores"] for node in shown["nodes"] if node["state"] == "standby")
    assert shown["cores"]["free"] == alive - shown["cores"]["held"] - drained + sleeping
    waiting = site.client_of(OWNER).get("/jobs?states=Waiting").body["jobs"]
    undated = [job for job in waiting if job["scheduledStart"] is None and job["Job_Id"] not in site.core.hopeless]
    assert shown["waiting"] == {
        "within_hour": 3, "within_day": 21, "later": 0, "no_date": len(undated), "held": 1, "impossible": 1,
    }  # fmt: skip


def test_the_overview_has_the_sums_that_commands_print(site, visitor):
    """`oarnodes` and `oarstat`, as they are installed, beside the page."""
    commands = Path(sys.executable).parent
    around = {"PATH": os.environ["PATH"], "OARLOCK_SERVER": str(site.socket), "LANG": "C.UTF-8", "HOME": "/"}

    def printed(*words: str) -> Any:
        ran = subprocess.run(
            [commands / words[0], *words[1:]], env=around, capture_output=True, text=True, check=True, timeout=60
        )
        return json.loads(ran.stdout)

    shown = site.client_of("root").get("/overview").body
    nodes = printed("oarnodes", "-J")
    assert len(nodes) == shown["cores"]["total"]
    held = {number: job for node in shown["nodes"] for number, job in [(node["name"], node["held"])]}
    by_node = Counter(row["network_address"] for row in nodes.values() if row.get("jobs"))
    assert {name: count for name, count in held.items() if count} == dict(by_node)
    states = Counter(job["state"] for job in printed("oarstat", "-J").values())
    queues = shown["queues"]
    assert sum(queue["running"] for queue in queues) == states["Running"]
    assert (sum(queue["waiting"] for queue in queues), sum(queue["held"] for queue in queues)) == (
        states["Waiting"], states["Hold"],
    )  # fmt: skip


def test_a_list_is_read_page_by_page_without_gaps_or_repeats(visitor):
    whole = _ids(visitor.get("/jobs?show=all&limit=1000"))
    for order in ("-id", "user", "-name", "start", "state"):
        seen, path = [], f"/jobs?show=all&limit=17&order={order}"
        while path:
            page = visitor.get(path)
            seen += _ids(page)
            following = re.search(r'href="([^"]+)" rel="next"', page.text)
            path = unescape(following[1]) if following else ""
        assert sorted(seen) == sorted(whole), order


def test_filters_stand_in_the_address(visitor):
    for query, column in (("user=daemon", "owner"), ("project=vision", "project"), ("name=render", "name")):
        ids = _ids(visitor.get(f"/jobs?show=all&limit=1000&{query}"))
        value = query.partition("=")[2]
        shown = {visitor.get(f"/api/v1/jobs/{number}").text.split(f'"{column}":"')[1].split('"')[0] for number in ids}
        assert shown == {value}
    held = re.findall(r'href="/jobs/(\d+)"', visitor.get("/nodes/node-01").text)
    assert _ids(visitor.get("/jobs?node=node-01&order=-id")) == [int(number) for number in dict.fromkeys(held)]


def test_names_with_markup_are_shown_as_they_are_written(visitor):
    assert "&lt;b&gt;md&lt;/b&gt; &amp; co" in visitor.get("/jobs").text
    assert "<b>md</b>" not in visitor.get("/jobs").text


def test_a_spreadsheet_takes_no_cell_for_a_formula(site, visitor):
    from tests.store.cluster import add_job

    site.core.database.write(lambda tx: add_job(tx, user=OWNER, name="=cmd()"))
    assert "'=cmd()" in visitor.get("/jobs.csv").text


def test_a_job_says_why_it_waits_and_what_would_start(visitor):
    page = visitor.get("/jobs/41").text
    assert "needs 4 nodes; 1 is free now" in page
    assert "oarsub -l /network_address=1,walltime=1:0:0" in page


def test_curves_are_drawn_without_scripts_and_sent_to_them(visitor):
    page = visitor.get("/jobs/1").text
    assert 'aria-label="Cores at work: least' in page
    assert len(re.findall('<svg class="plot"', page)) == 3
    assert '"id":"cpu"' in visitor.get("/jobs/1/plots.json").text


def test_a_wide_job_has_as_many_plots_as_there_is_room_for_curves():
    assert drawn_metrics(1) == drawn_metrics(MOST_CURVES // len(USUAL_JOB)) == []  # all of them
    for nodes in range(MOST_CURVES // len(USUAL_JOB) + 1, MOST_CURVES + 1):
        drawn = drawn_metrics(nodes)
        assert nodes * len(drawn) <= MOST_CURVES < nodes * (len(drawn) + 1)
        assert drawn == list(USUAL_JOB[: len(drawn)])
    assert drawn_metrics(MOST_CURVES + 1) == []  # of all nodes together


def test_a_page_says_that_a_file_of_curves_is_damaged_and_others_work(site, visitor):
    over = _ids(visitor.get(f"/jobs?show=over&user={OWNER}"))[0]
    places = site.core.collector.collector.places
    node_day = places.node_log("node-02", site.core.clock.now()).with_suffix(".h5")
    for path in (places.archived(over), node_day):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"no HDF5")
    try:
        shown = {path: visitor.get(path) for path in (f"/jobs/{over}", "/nodes/node-02", "/jobs/1")}
        elsewhere = signed_in(site, "daemon").get(f"/jobs/{over}").text
    finally:
        places.archived(over).unlink()
        node_day.unlink()
    assert {path: (seen.status, "is damaged" in seen.text) for path, seen in shown.items()} == {
        f"/jobs/{over}": (200, True), "/nodes/node-02": (200, True), "/jobs/1": (200, False),
    }  # fmt: skip
    assert f"Curves cannot be shown. The file {over}.h5 is damaged" in shown[f"/jobs/{over}"].text
    assert "is damaged" not in elsewhere


def test_others_see_the_state_of_a_job_and_not_what_it_runs(site, visitor):
    other = signed_in(site, "daemon")
    assert "./cfd.sh --seed 0" in visitor.get("/jobs/1").text
    seen = other.get("/jobs/1")
    assert (seen.status, "./cfd.sh" in seen.text, '<svg class="plot"' in seen.text) == (200, False, False)
    assert other.get("/jobs/1/plots.json").text == "[]"


def test_a_node_has_its_own_chart_and_a_line_for_each_job(visitor):
    page = visitor.get("/nodes/node-02").text
    assert 'class="gantt"' in page
    assert "Cores at work, by job" in page
    spark = visitor.get("/nodes/node-02/spark.svg")
    assert (spark.headers["content-type"], "<polyline" in spark.text) == ("image/svg+xml", True)
    assert "<polyline" not in visitor.get("/nodes/no'such--node/spark.svg").text
    assert visitor.get("/nodes/x'%20OR%20'1'='1").status == 404


def test_an_owner_reads_the_end_of_the_output_and_nobody_else_does(site, visitor):
    page = visitor.get("/jobs/1/output?stream=stderr").text
    assert "the end of /home/nobody/OAR." in page
    assert ".stderr &lt;b&gt;&amp;&lt;/b&gt;" in page
    assert site.core.asked[-1][0] == "compute" or ("output", "node-01") in [asked[:2] for asked in site.core.asked]
    assert '"/jobs/1/output"' in visitor.get("/jobs/1").text
    other = signed_in(site, "daemon")
    assert (other.get("/jobs/1/output").status, '"/jobs/1/output"' in other.get("/jobs/1").text) == (403, False)
    assert visitor.get("/jobs/41/output").status in {403, 404}


def test_the_name_of_a_node_opens_its_cores_in_the_chart(visitor):
    def links(path):
        addresses = re.findall(r'<a href="([^"]*)" class="g-open">', visitor.get(path).text)
        return [unescape(address) for address in addresses]

    [first, *_] = links("/gantt?since=1794900000&until=1794950000")
    assert first == "/gantt?since=1794900000&until=1794950000&open=node-01"
    assert "open=" not in links(first)[0]
    assert "open=node-01%2Cnode-02" in links(first)[1]


def test_a_bar_of_a_large_chart_says_what_it_is_when_asked(visitor, monkeypatch):
    titled = r'<a href="/jobs/1" class="c1 running" [^>]*><title>(job 1 [^<]*)</title>'
    [title] = re.findall(titled, visitor.get("/gantt").text)
    monkeypatch.setattr(gantt, "_MOST_TITLES", 3)
    assert re.findall(titled, visitor.get("/gantt").text) == []
    assert 'class="g-number" x="7"' in visitor.get("/gantt").text
    told = visitor.get("/gantt/about/1").text
    assert told.startswith(f"{unescape(title)}. ")
    assert told.endswith(" % of its cores are busy.")
    assert visitor.get("/gantt/about/1?zone=Asia/Tokyo").text != told
    assert visitor.get("/gantt/about/1?zone=nowhere").status == 400
    assert visitor.get("/gantt/about/99999").text == ""


def test_without_a_database_a_page_says_since_when_and_comes_back(site, visitor):
    core, began = site.core, site.core.clock.at

    async def read(*_args, **_more):
        raise DatabaseAway("The database cannot be reached.", hint="It is asked again.")

    core.read = read
    try:
        first = visitor.get("/jobs")
        core.clock.at += 3600
        later = visitor.get("/")
    finally:
        del core.read
        core.clock.at = began
    said = f"not answered since {exact(began)}"
    assert [(seen.status, said in seen.text, "It is asked again." in seen.text) for seen in (first, later)] == [
        (503, True, True), (503, True, True),
    ]  # fmt: skip
    assert visitor.get("/jobs").status == 200


def test_a_secret_in_a_command_line_is_masked(site, visitor):
    from tests.store.cluster import add_job

    added = site.core.database.write(
        lambda tx: add_job(tx, user=OWNER, uid=65534, command="run --api-key=hunter2 --token abc", initial_request="")
    )
    page = visitor.get(f"/jobs/{added.id}").text
    assert "run --api-key=●●● --token ●●●" in page
    assert "hunter2" not in page


def test_two_clicks_hold_a_job_once(site, visitor):
    [(action, fields)] = [form for form in forms(visitor.get("/jobs/41").text) if form[1].get("do") == "hold"]
    site.core.asked.clear()
    assert [visitor.post(action, fields).headers["location"] for _ in range(2)] == ["/jobs/41?done=1"] * 2
    assert [asked for asked in site.core.asked if asked[0] == "hold"] == [("hold", OWNER, False, [41])]


def test_several_jobs_are_ended_at_once_and_those_of_others_refused(site, visitor):
    [(action, fields)] = [form for form in forms(visitor.get("/jobs").text) if form[0] == "/jobs/act"]
    site.core.asked.clear()
    done = visitor.post(action, fields | {"do": "delete", "id": ["1", "2"], "back": "/jobs?user=nobody"})
    assert done.headers["location"].startswith("/jobs?user=nobody&done=1&refused=Job+2+belongs+to+")
    assert [asked for asked in site.core.asked if asked[0] == "kill"] == [("kill", OWNER, False, [1])]


@pytest.mark.parametrize("back", ["//evil.example", "https://evil.example/jobs", "/jobs/../x", "javascript:alert(1)"])
def test_a_form_leads_back_to_pages_of_the_portal_alone(visitor, back):
    [(action, fields)] = [form for form in forms(visitor.get("/jobs").text) if form[0] == "/jobs/act"]
    done = visitor.post(action, fields | {"do": "hold", "id": ["5"], "back": back})
    assert done.headers["location"].startswith("/jobs?done=1")


def test_an_administrator_drains_a_node_and_others_cannot(site, visitor):
    admin = signed_in(site, "root")
    assert forms(visitor.get("/nodes/node-03").text) == []
    [(action, fields)] = forms(admin.get("/nodes/node-03").text)
    assert admin.post(action, fields).status == 303
    assert "Allow new jobs" in admin.get("/nodes/node-03").text
    [(action, fields)] = forms(admin.get("/nodes/node-03").text)
    admin.post(action, fields)


@pytest.mark.parametrize(
    ("text", "location"),
    [("17", "/jobs/17"), ("node-07", "/nodes/node-07"), ("daemon", "/jobs?user=daemon&show=all"),
     ("climate", "/jobs?project=climate&show=all"), ("render", "/jobs?name=render&show=all"), ("", "/jobs")],
)  # fmt: skip
def test_the_search_leads_to_what_is_meant(visitor, text, location):
    assert visitor.get(f"/search?q={text}").headers["location"] == location


def test_the_search_says_what_there_is_not(visitor):
    assert visitor.get("/search?q=%3Cscript%3E").status == 404
    assert "node-17" in visitor.get("/search?q=e-17").text


BAD = [
    "",
    "0",
    "-1",
    "9" * 30,
    "%00",
    "'",
    '"><script>alert(1)</script>',
    "..%2f..%2fetc%2fpasswd",
    "%ff",
    "١٢",
    "a" * 5000,
]


@pytest.mark.parametrize("value", BAD)
def test_what_makes_no_sense_gets_a_page_with_a_sentence(visitor, value):
    paths = [f"/jobs/{value}", f"/nodes/{value}", f"/search?q={value}", f"/?where={value}", f"/sign-in?link={value}"]
    paths += [f"/jobs?{name}={value}" for name in ("user", "after", "order", "limit", "node", "array", "where", "show")]
    for path in paths:
        seen = visitor.get(
            path.replace('"', "%22").replace("<", "%3C").replace(">", "%3E").replace("١٢", "%D9%A1%D9%A2")
        )
        assert seen.status in {200, 303, 400, 404, 413}, path
        assert "<script>alert" not in seen.text
        assert "<h1" in seen.text or seen.status == 303


def test_without_signing_in_there_is_nothing_to_see(site):
    stranger = Visitor(site.port)
    found = {path: stranger.get(path).status for path in [*PAGES, "/live/overview", "/live/jobs/1", "/jobs.csv"]}
    assert found == dict.fromkeys(found, 401)


def test_the_public_overview_names_nobody(sqlite_path):
    with made_up_site(sqlite_path, measured=False, portal_public=True) as site:
        seen = Visitor(site.port).get("/")
        assert (seen.status, "node-01" in seen.text) == (200, True)
        assert [word for word in ("daemon", "www-data", "render", OWNER) if word in seen.text] == []
        assert Visitor(site.port).get("/jobs").status == 401


def test_french_is_spoken_to_those_who_ask_for_it(visitor):
    page = visitor.get("/jobs", Accept_Language="fr-FR,fr;q=0.9").text
    assert '<html lang="fr">' in page
    assert "Temps / durée max." in page
    chosen = Visitor(visitor.port, dict(visitor.cookies))
    chosen.get("/jobs?lang=fr")
    assert '<html lang="fr">' in chosen.get("/jobs").text


def test_a_list_that_did_not_change_is_not_sent_again(site):
    visitor = signed_in(site, OWNER)
    first = visitor.get("/api/v1/jobs?limit=5&order=-id")
    again = visitor.get("/api/v1/jobs?limit=5&order=-id", If_None_Match=first.headers["etag"])
    assert (first.status, again.status, again.text) == (200, 304, "")


def test_the_page_of_a_user_has_its_quotas_and_pdf_not_those_of_others(sqlite_path, tmp_path):
    rules = tmp_path / "quotas.json"
    rules.write_text(
        '{"quotas": {"*,*,*,nobody": [64, 9, -1], "*,*,*,daemon": [7, -1, -1], "*,vision,*,*": [5, 4, 3]}}'
    )
    with made_up_site(sqlite_path, measured=False, quotas=True, quotas_conf_file=rules) as site:
        own, other, admin = (signed_in(site, user) for user in (OWNER, "daemon", "root"))
        page = own.get(f"/users/{OWNER}").text
        pdf = [unescape(address) for address in re.findall(r'href="(/api/v1/reports/period.pdf[^"]*)"', page)]
        assert ("*,*,*,nobody" in page, "*,*,*,daemon" in page) == (True, False)
        assert len(pdf) == 1
        seen = own.get(pdf[0])
        assert (seen.status, seen.headers["content-type"]) == (200, "application/pdf")
        assert other.get(pdf[0]).status == 403
        theirs = other.get(f"/users/{OWNER}").text
        assert "/api/v1/reports/period.pdf" not in theirs
        assert "/api/v1/reports/period.pdf?project=vision" in unescape(admin.get("/projects/vision").text)
        assert "*,vision,*,*" in admin.get("/projects/vision").text


def test_a_project_shows_what_its_members_held(site, visitor):
    page = signed_in(site, "root").get("/projects/vision?days=30").text
    assert "<h2>Held by members</h2>" in page
    assert re.search(r"core-hours \(daemon [0-9.]+, nobody [0-9.]+\)</title><rect class=\"f-c[01]\"", page)
    assert "Held by members" not in visitor.get("/projects/vision?days=30").text, "one of them sees no others"


def test_the_power_of_nodes_is_divided_by_what_their_cores_do(site, visitor):
    def suspect(state: str) -> None:
        change = f"UPDATE resources SET state = '{state}' WHERE network_address = 'node-02'"
        site.core.database.write(lambda tx: tx.exec_driver_sql(change))

    before = site.client_of(OWNER).get("/overview").body
    a_node = before["power"]["watts"] / before["power"]["nodes"]
    metered = [node for node in before["nodes"] if node["working"] is not None]
    parts = {name: before["power"][name] for name in ("working", "idle", "down", "free")}
    assert parts == pytest.approx({
        "working": sum(a_node * node["working"] / node["cores"] for node in metered),
        "idle": sum(a_node * (node["held"] - node["working"]) / node["cores"] for node in metered),
        "down": 0,
        "free": sum(a_node * (1 - node["held"] / node["cores"]) for node in metered),
    })  # fmt: skip
    suspect("Suspected")
    try:
        after, page = site.client_of(OWNER).get("/overview").body["power"], visitor.get("/").text
    finally:
        suspect("Alive")
    assert after["down"] == pytest.approx(a_node)
    assert sum(after[name] for name in parts) == pytest.approx(after["watts"]) == before["power"]["watts"]
    down, free = (100 * after[name] / after["watts"] for name in ("down", "free"))
    assert f"{down:.0f} % down, {free:.0f} % free" in page


def test_what_was_done_is_said_once_and_not_carried_along(site, visitor):
    page = visitor.get("/jobs?user=nobody&show=waiting&done=2&refused=because").text
    assert "Done for 2 jobs." in page
    assert "done=2" not in page
    assert "refused=because" not in page
    [(action, fields)] = [form for form in forms(page) if form[0] == "/jobs/act"]
    back = visitor.post(action, {**fields, "do": "hold", "back": f"{fields['back']}&done=9"}).headers["location"]
    assert back.startswith("/jobs?user=nobody&show=waiting&refused=No+job+was+chosen")
    assert "No job was chosen: tick some in the list." in visitor.get(back).text


def test_a_downloaded_list_has_what_the_page_shows(site, visitor):
    running = list(csv.DictReader(visitor.get("/jobs.csv?show=running&user=nobody").text.splitlines()))
    waiting = list(csv.DictReader(visitor.get("/jobs.csv?show=waiting").text.splitlines()))
    shown = visitor.get("/jobs?show=running&user=nobody").text
    shares = [f"{100 * float(row['cpu_share']):.0f} %" for row in running]
    assert len(shares) > 3
    assert all(f'<span class="figure">{share}</span>' in shown for share in shares)
    assert {row["Job_Id"] for row in waiting if row["scheduledStart"]} == {str(number) for number in range(40, 64)}


def test_a_job_names_the_jobs_that_wait_for_it(site, visitor):
    from tests.store.cluster import add_job

    own = {"user": OWNER, "uid": 65534}
    first = site.core.database.write(lambda tx: add_job(tx, **own))
    after = [site.core.database.write(lambda tx: add_job(tx, after=(first.id,), **own)) for _ in range(2)]
    page = visitor.get(f"/jobs/{first.id}").text.partition("Waited for by")[2].partition("</dd>")[0]
    assert [f'href="/jobs/{job.id}"' in page for job in after] == [True, True]
    listed = site.client_of(OWNER).get(f"/jobs?requires={first.id}").body["jobs"]
    assert [job["Job_Id"] for job in listed] == [job.id for job in after]
    assert "Waited for by" not in visitor.get(f"/jobs/{after[0].id}").text


def test_the_script_of_a_job_is_shown_without_its_secrets(site, visitor):
    page = visitor.get("/jobs/87").text.partition('<details class="script">')[2].partition("</details>")[0]
    assert "Script, 7 lines" in page
    assert "export WANDB_API_KEY=●●●" in page
    assert "./run.sh --input &lt;mesh&gt;" in page
    assert '<details class="script">' not in visitor.get("/jobs/88").text, "another's job"
