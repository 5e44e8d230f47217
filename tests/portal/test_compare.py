"""Tasks of an array, two to four jobs side by side, and the small curves of the list."""

import os
from collections.abc import Iterator

import pytest

from oarlock.insight.drawing.marks import sparkline_image
from oarlock.insight.outliers import outliers
from oarlock.store.queries.usage import summaries
from tests.portal.browsing import Visitor, forms, signed_in
from tests.portal.site import OWNER, made_up_site
from tests.web.nodeless_server import Running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

ARRAY, LONG_TASK = 92, 95


@pytest.fixture(scope="module")
def site(sqlite_of_module) -> Iterator[Running]:
    with made_up_site(sqlite_of_module) as running:
        yield running


@pytest.fixture(scope="module")
def visitor(site: Running) -> Visitor:
    return signed_in(site, OWNER)


def test_an_array_has_a_row_a_task_and_names_the_one_that_ran_long(visitor):
    page = visitor.get(f"/arrays/{ARRAY}").text
    rows = [row for row in page.split("<tr>") if 'href="/jobs/' in row]
    assert len(rows) == 8
    assert [row for row in rows if "median 0:16:44" in row] == [row for row in rows if f"/jobs/{LONG_TASK}" in row]


def test_an_array_is_read_page_by_page(visitor):
    page = visitor.get(f"/arrays/{ARRAY}?limit=5").text
    assert f'href="/arrays/{ARRAY}?after=96&amp;limit=5" rel="next"' in page
    assert visitor.get(f"/arrays/{ARRAY}?limit=5&after=96").text.count('<td><a href="/jobs/') == 3


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/arrays/999999", 404, "There is no array 999999."),
        ("/arrays/-1", 400, "is not the number of a job"),
        ("/arrays/%3Cscript%3E", 400, "<code>&lt;script&gt;</code> is not the number of a job"),
        ("/compare", 400, "0 were chosen"),
        ("/compare?ids=75,75", 400, "1 were chosen"),
        ("/compare?ids=" + ",".join(map(str, range(41, 62))), 400, "21 were chosen"),
        ("/compare?ids=75,';--", 400, "is not the number of a job"),
        ("/compare?ids=75,99999999999999999999", 400, "is not the number of a job"),
        ("/compare?ids=75,999999", 404, "There is no job 999999."),
        ("/jobs/x/spark.svg", 400, "is not the number of a job"),
    ],
)
def test_what_cannot_be_compared_is_answered_with_a_sentence(visitor, path, status, sentence):
    seen = visitor.get(path)
    assert (seen.status, sentence in seen.text.replace("&#39;", "'")) == (status, True)


def test_jobs_side_by_side_say_in_bold_what_differs(visitor):
    page = visitor.get("/compare?ids=75,77").text
    assert page.count('<th scope="col">') == 2
    rows = {row.split("</th>")[0].split(">")[-1]: row for row in page.split("<tr>") if 'scope="row"' in row}
    assert {"User", "Asked", "Submitted", "Cores used"} <= set(rows)
    assert ("<b>" in rows["User"], "<b>" in rows["Submitted"]) == (False, True)


def test_twenty_jobs_are_compared_by_the_metric_that_is_chosen(visitor):
    ids = ",".join(map(str, range(72, 92)))
    page = visitor.get(f"/compare?ids={ids}").text
    assert (page.count('<th scope="col">'), page.count('class="day"'), "figure-plot" in page) == (20, 20, False)
    energy = visitor.get(f"/compare?ids={ids}&metric=Energy").text
    assert 'aria-current="true">Energy</a>' in energy
    assert "kWh</title>" in energy
    assert "<script>" not in visitor.get(f"/compare?ids={ids}&metric=%3Cscript%3E").text


def test_chosen_jobs_of_the_list_are_compared(visitor):
    [(action, fields)] = [form for form in forms(visitor.get("/jobs?show=over").text) if form[0] == "/jobs/act"]
    answer = visitor.post(action, {**fields, "do": "compare", "id": ["75", "77"]})
    assert (answer.status, answer.headers["location"]) == (303, "/compare?ids=75%2C77")


def test_curves_in_the_list_are_those_of_ones_own_jobs(site, visitor):
    listed = visitor.get("/jobs?show=running&limit=1000").text
    own = {job["Job_Id"] for job in site.client_of(OWNER).get(f"/jobs?user={OWNER}&states=Running").body["jobs"]}
    shown = {int(part.split("/")[0]) for part in listed.split('src="/jobs/')[1:]}
    assert shown == own
    first = min(own)
    picture = visitor.get(f"/jobs/{first}/spark.svg")
    assert (picture.headers["content-type"], "<polyline" in picture.text) == ("image/svg+xml", True)
    others = signed_in(site, "daemon").get(f"/jobs/{first}/spark.svg")
    assert (others.status, "<polyline" in others.text) == (200, False)


def test_a_value_stands_apart_only_far_from_enough_others():
    even = {number: 100.0 + number for number in range(8)}
    assert outliers(even) == {}
    assert outliers(even | {9: 400.0}) == {9: 104.0}
    assert outliers({1: 1.0, 2: 1.0, 3: 1.0, 4: 99.0}) == {}  # too few
    assert outliers(dict.fromkeys(range(9), 0.0)) == {}


def test_a_picture_of_nothing_is_empty():
    assert [("<polyline" in sparkline_image(values, top=2.0)) for values in ([], [None], [1.0, None, 2.0])] == [
        False,
        False,
        True,
    ]


def test_a_user_has_a_histogram_and_a_part_of_all_that_was_held(site, visitor):
    page = visitor.get(f"/users/{OWNER}?days=30").text
    assert "How well cores were used" in page
    assert "Part of all that was held" in page
    profile = site.client_of(OWNER).get(f"/usage/profile?user={OWNER}").body
    counts = [found["jobs"] for found in profile["bins"]]
    assert (sum(counts), counts[1] > 0 or counts[2] > 0, counts[9] > 0) == (10, True, True)
    assert all(day["core_seconds"] <= day["all_core_seconds"] for day in profile["shares"])


def test_a_profile_of_somebody_else_is_empty_but_for_staff(site):
    others = site.client_of("games").get(f"/usage/profile?user={OWNER}").body
    assert (sum(found["jobs"] for found in others["bins"]), others["shares"], others["own"]) == (0, [], True)
    staff = site.client_of("root").get(f"/usage/profile?user={OWNER}").body
    assert (sum(found["jobs"] for found in staff["bins"]) > 0, staff["own"]) == (True, False)
    assert site.client_of(OWNER).get("/usage/profile").status == 400


def test_a_job_that_runs_names_its_neighbours(visitor):
    running = visitor.get("/jobs?show=running&node=node-02").text
    own = running.split('<td><a href="/jobs/')[1].split('"')[0]
    assert "On the same nodes" in visitor.get(f"/jobs/{own}").text


def test_a_profile_of_a_long_past_has_the_newest_jobs_and_says_so(site):
    with site.core.database.read() as tx:
        whole = summaries.count_by_use(tx, 0, bins=10, most=1000, user=OWNER)
        newest = summaries.count_by_use(tx, 0, bins=10, most=3, user=OWNER)
    assert sum(count for count, _ in newest.values()) == 3
    assert all(count <= whole[place][0] for place, (count, _) in newest.items())
