"""Every page in a real browser: drawn without a complaint, nothing from elsewhere, readable by everybody."""

import os
from collections.abc import Iterator

import pytest

from oarlock.model.errors import DatabaseAway
from tests.portal.browsing import Visitor, signed_in
from tests.portal.chromium import NARROW, WIDE, BrowserThread, in_browser, window
from tests.portal.pages import PAGES, STAFF_PAGES
from tests.portal.site import OWNER, made_up_site
from tests.web.nodeless_server import Running, alone

pytestmark = [
    pytest.mark.component("chromium"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[BrowserThread]:
    started = BrowserThread()
    yield started
    started.close()


@pytest.fixture(scope="module")
def site(sqlite_of_module) -> Iterator[Running]:
    with made_up_site(sqlite_of_module) as running:
        yield running


@pytest.fixture
def with_every_page(sqlite_path) -> Iterator[Running]:
    everything = {"prometheus_url": "http://127.0.0.1:9", "prometheus_has": ("lustre", "libvirtd")}
    with alone(sqlite_path, job_min_uid=1, admins=("www-data",), **everything) as running:
        yield running


@pytest.fixture(scope="module")
def visitor(site: Running) -> Visitor:
    return signed_in(site, OWNER)


LOOKS = (("light", WIDE), ("dark", WIDE), ("light", NARROW))


@in_browser
def test_every_page_is_drawn_without_a_complaint(browser, site, visitor):
    """Light, dark and narrow in turn: each page is seen once, each look on some of them."""
    found = {}
    admin = signed_in(site, "root")
    for somebody, pages in ((visitor, PAGES), (admin, STAFF_PAGES)):
        for place, (scheme, width) in enumerate(LOOKS):
            with window(browser, site.port, somebody.cookies, width=width, scheme=scheme) as opened:
                for path in pages[place :: len(LOOKS)]:
                    opened.open(path)
                    found[path] = (opened.complaints[:], opened.elsewhere[:], opened.sideways(), opened.faults())
    assert found == {path: ([], [], 0, []) for path in [*PAGES, *STAFF_PAGES]}


@pytest.mark.soak
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("path", [*PAGES, *STAFF_PAGES])
@in_browser
def test_every_page_in_every_look(browser, site, visitor, path, scheme, width):
    somebody = signed_in(site, "root") if path in STAFF_PAGES else visitor
    with window(browser, site.port, somebody.cookies, width=width, scheme=scheme) as opened:
        opened.open(path)
        assert (opened.complaints, opened.elsewhere, opened.sideways(), opened.faults()) == ([], [], 0, [])


# The name of an element, which is the same after a live part was drawn anew.
NAMED = """it => [it.tagName, it.getAttribute('href') || it.id || it.name || it.getAttribute('aria-label')
  || it.textContent.trim().slice(0, 60)].join(' ')"""
# What has the focus, whether one sees that it has, and whether it is in sight.
FOCUSED = f"""() => {{
  const it = document.activeElement;
  if (it === document.body || it === document.documentElement) return null;
  const look = getComputedStyle(it), place = it.getBoundingClientRect();
  const ring = look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) > 0 || look.boxShadow !== 'none';
  const inside = place.bottom > 0 && place.top < innerHeight && place.right > 0 && place.left < innerWidth;
  return {{name: ({NAMED})(it), ring, seen: place.width > 0 && inside}};
}}"""
# What should be reached: all that can be clicked, typed into or scrolled, and is drawn.
REACHABLE = f"""() => {{
  const fields = 'button, input:not([type=hidden]), select, textarea';
  return [...document.querySelectorAll(`a[href], ${{fields}}, summary, [tabindex="0"]`)].filter(it =>
    !it.disabled && it.tabIndex >= 0 && it.checkVisibility({{visibilityProperty: true}})
    && !it.closest('details:not([open]) > :not(summary)')).map({NAMED});
}}"""


@pytest.mark.soak
@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("path", [*PAGES, *STAFF_PAGES])
@in_browser
def test_every_page_is_toured_by_the_tab_key_alone(browser, site, visitor, path, width):
    """All that can be used is reached, shows that it has the focus, is in sight then, and lets it go again."""
    somebody = signed_in(site, "root") if path in STAFF_PAGES else visitor
    with window(browser, site.port, somebody.cookies, width=width) as opened:
        page = opened.open(path)
        wanted = page.evaluate(REACHABLE)
        reached = []
        for _ in range(2 * len(wanted) + 20):
            page.keyboard.press("Tab")
            focused = page.evaluate(FOCUSED)
            if focused is None or (reached and focused["name"] == reached[0]["name"]):
                break
            reached.append(focused)
        else:
            pytest.fail(f"the focus never leaves: {reached[-3:]}")
        assert [it for it in reached if not (it["ring"] and it["seen"])] == []
        assert set(wanted) - {it["name"] for it in reached} == set()


ON_PAPER = """() => {
  const [red, green, blue] = getComputedStyle(document.querySelector('main')).color.match(/[0-9.]+/g).map(Number);
  const drawn = it => it.checkVisibility();
  const left = [...document.querySelectorAll('.top, .foot, form, button')].filter(drawn).length;
  const charts = [...document.querySelectorAll('svg.gantt')].map(it => it.getBoundingClientRect().right - innerWidth);
  return {ink: Math.max(red, green, blue), left, wide: Math.max(0, ...charts)};
}"""


@pytest.mark.soak
@pytest.mark.parametrize("path", ["/", "/gantt", "/jobs/41", "/jobs/75"])
@in_browser
def test_paper_gets_dark_ink_whole_charts_and_no_forms(browser, site, visitor, path):
    with window(browser, site.port, visitor.cookies, scheme="dark") as opened:
        page = opened.open(path)
        page.set_viewport_size({"width": 760, "height": 1100})
        page.emulate_media(media="print", color_scheme="dark")
        seen = page.evaluate(ON_PAPER)
        assert (seen["ink"] < 100, seen["left"], seen["wide"]) == (True, 0, 0)


@pytest.mark.parametrize("language", ["en", "fr"])
@in_browser
def test_all_pages_of_an_administrator_are_in_sight_at_once(browser, with_every_page, language):
    """A navigation that scrolls hides pages."""
    admin = signed_in(with_every_page, "www-data")
    with window(browser, with_every_page.port, admin.cookies) as opened:
        assert opened.open(f"/me?lang={language}").evaluate(IN_THE_BAR) == [11, 0]


# How many pages the bar has, and by how many pixels they are wider than it is.
IN_THE_BAR = """() => {
  const bar = document.querySelector('.nav');
  return [bar.querySelectorAll('a').length, bar.scrollWidth - bar.clientWidth];
}"""


@in_browser
def test_slash_goes_to_the_search_and_a_question_mark_lists_keys(browser, site, visitor):
    with window(browser, site.port, visitor.cookies) as opened:
        page = opened.open("/me")
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "search"
        page.keyboard.press("Escape")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("?")
        assert page.locator("#keys").is_visible()


@in_browser
def test_the_overview_follows_what_happens_without_a_reload(browser, site, visitor):
    with window(browser, site.port, visitor.cookies) as opened:
        page = opened.open("/")
        page.wait_for_selector(".live.on")
        before = page.locator("[data-live-part=site] .big b").first.inner_text()
        numbers = "SELECT resource_id FROM resources WHERE network_address = 'node-04'"
        site.core.database.write(
            lambda tx: tx.exec_driver_sql(f"UPDATE resources SET state = 'Suspected' WHERE resource_id IN ({numbers})")
        )
        site.core.changes += 1
        page.wait_for_selector('a.node[href="/nodes/node-04"] .node-state:text("suspected")')
        assert page.locator("[data-live-part=site] .big b").first.inner_text() == before
        assert opened.complaints == []


@pytest.mark.soak
@in_browser
def test_a_stream_turns_grey_without_a_database_and_comes_back(browser, site, visitor):
    async def read(*_args, **_more):
        raise DatabaseAway("The database cannot be reached.")

    with window(browser, site.port, visitor.cookies) as opened:
        page = opened.open("/")
        page.wait_for_selector(".live.on")
        site.core.read = read
        try:
            site.core.changes += 1
            page.wait_for_selector(".live:not(.on)")
        finally:
            del site.core.read
        page.wait_for_selector(".live.on")


@in_browser
def test_the_gantt_is_walked_by_keys_and_tells_of_each_job(browser, site, visitor):
    with window(browser, site.port, visitor.cookies) as opened:
        page = opened.open("/gantt")
        page.keyboard.press("]")
        job = page.evaluate("document.activeElement.getAttribute('href')").removeprefix("/jobs/")
        assert job.isdigit()
        assert page.evaluate("document.querySelectorAll('.chosen').length") == 1
        page.wait_for_selector(f"[data-about]:has-text('job {job}')")
        page.evaluate("document.querySelectorAll('svg.gantt a title').forEach((title) => title.remove())")
        page.keyboard.press("]")  # a bar of a chart too large for titles learns its own when it is met
        page.wait_for_selector("svg.gantt a:focus title:has-text('job ')", state="attached")
        since = int(page.get_attribute("svg.gantt[data-since]", "data-since"))
        with page.expect_navigation():
            page.keyboard.press("+")
        assert page.get_attribute("svg.gantt[data-since]", "data-since") == str(since + 6 * 3600 // 4)
        page.keyboard.press("]")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        assert "/jobs/" in page.url


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("since=5&until=5", "A chart shows from 0:10:00"),
        ("since=-1", "<code>since</code> must be a whole number"),
        ("zone=../../etc/passwd", "is not a time zone"),
        ("where=nothing+%3D+", "nothing"),
        ("span=99999999999", "<code>span</code> must be a whole number"),
    ],
)
def test_a_gantt_that_cannot_be_is_answered_with_a_sentence(site, visitor, query, sentence):
    seen = visitor.get(f"/gantt?{query}")
    assert (seen.status, sentence in seen.text) == (400, True)
