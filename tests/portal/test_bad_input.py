"""What makes no sense, in every part of every address: a page with a sentence, nothing stored, nothing run.

The addresses and their parameters are read from the pages and verbs that are registered.
"""

import os
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import count
from typing import Self
from urllib.parse import urlencode

import pytest

from tests.portal import addresses
from tests.portal.browsing import Visitor, forms, signed_in
from tests.portal.site import OTHERS, OWNER, made_up_site
from tests.store.cluster import add_job, run
from tests.web.nodeless_server import Running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

EVIL = [
    "%00", "%27%20OR%201%3D1%20--", "%3Cscript%3Ealert(1)%3C%2Fscript%3E", "..%2F..%2F..%2Fetc%2Fpasswd", "-1",
    "9" * 30, "x%0D%0AX-Evil%3A%201", "%FF%FE", "%D9%A1%D9%A2", "a" * 5000, "", "%7B%7B7*7%7D%7D", "nan", "1e400",
    "%22%3E%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", "%3B%20DROP%20TABLE%20jobs", "%2F%2Fevil.example", "%24(id)",
]  # fmt: skip
REFUSED = {400, 401, 403, 404, 405, 413, 414, 422, 431}
STORED = ("jobs", "resources", "queues", "saved_views", "job_shares", "site_notices", "admission_rules", "tokens")


@pytest.fixture(scope="module")
def site(sqlite_of_module) -> Iterator[Running]:
    with made_up_site(sqlite_of_module, measured=False) as running:
        yield running


@pytest.fixture(scope="module")
def visitor(site: Running) -> Visitor:
    return signed_in(site, OWNER)


def _stored(site: Running) -> dict[str, int]:
    with site.core.database.read() as tx:
        names = {row[0] for row in tx.exec_driver_sql("SELECT name FROM sqlite_master WHERE type = 'table'")}
        return {
            name: tx.exec_driver_sql(f"SELECT count(*) FROM {name}").scalar_one() for name in STORED if name in names
        }


class Asking:
    """Asks over one connection, and looks at each answer; the beginning of a stream is enough."""

    def __init__(self, visitor: Visitor) -> None:
        self._visitor = visitor
        self._connection = HTTPConnection("127.0.0.1", visitor.port, timeout=20)
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def ask(self, method: str, path: str, body: str | None = None, **more: str) -> int:
        cookie = "; ".join(f"{name}={value}" for name, value in self._visitor.cookies.items())
        headers = {"Cookie": cookie, "Sec-Fetch-Site": "same-origin", **more}
        self._connection.request(method, path, body, headers)
        reply = self._connection.getresponse()
        if reply.getheader("content-type") == "text/event-stream":
            reply.close()
            self._connection.close()
            return reply.status
        text = reply.read().decode(errors="replace")
        location = reply.getheader("location", "/")
        is_markup = reply.getheader("content-type", "").startswith(("text/html", "image/svg"))
        unharmed = (
            reply.status in {200, 303, 304, *REFUSED}
            and not (is_markup and ("<script>alert" in text or "<img src=x" in text))
            and not ("root:x:" in text or "Traceback" in text)
            and reply.getheader("x-evil") is None
            and reply.getheader("access-control-allow-origin") is None
            and location.startswith("/")
            and not location.startswith("//")
        )
        if not unharmed:
            self.wrong.append(f"{method} {path[:200]}: {reply.status} {text[:200]}")
        return reply.status


def _addresses(values: list[str]) -> Iterator[str]:
    """Yield every page with each value in each of its parts and parameters, and so every verb that shows something."""
    for page in addresses.of_method("GET"):
        for value in values:
            yield from (addresses.filled(page.path, {part: value}) for part in addresses.parts(page.path))
            yield from (f"{addresses.filled(page.path)}?{name}={value}" for name in addresses.parameters(page.handle))
    for verb, path in addresses.shown_by_verbs():
        for value in values:
            yield from (f"{path}?{name}={value}" for name in addresses.fields(verb) if f"{{{name}}}" not in verb.path)


def _crawl(site: Running, visitor: Visitor, paths: Iterator[str]) -> None:
    before = _stored(site)
    site.core.asked.clear()
    with Asking(visitor) as asking:
        for path in paths:
            asking.ask("GET", path)
    assert asking.wrong == []
    assert _stored(site) == before
    assert {asked[0] for asked in site.core.asked} <= {"compute", "output", "when"}


def test_every_parameter_of_every_page_takes_bad_input(site, visitor):
    turn = count()
    chosen = [[value] for value in EVIL]
    paths = list(_addresses(["\0"]))  # a place for one value each: another is put into every one of them
    _crawl(site, visitor, (path.replace("\0", chosen[next(turn) % len(chosen)][0]) for path in paths))


@pytest.mark.soak
def test_every_parameter_of_every_page_takes_all_bad_input(site, visitor):
    _crawl(site, visitor, _addresses(EVIL))


def test_every_form_takes_bad_input_and_does_nothing_to_jobs_of_others(site, visitor):
    somebody = signed_in(site, OTHERS[1])
    token = next(fields for _, fields in forms(somebody.get("/jobs").text))
    kept = {name: token[name] for name in ("form_token", "request_id")}
    before, turn = _stored(site), count()
    site.core.asked.clear()
    pages = [page for page in addresses.of_method("POST") if page.path != "/sign-out"]
    with Asking(somebody) as asking:
        for path, name in ((page.path, name) for page in pages for name in addresses.parameters(page.handle)):
            fields = f"{urlencode(kept)}&{name}={EVIL[next(turn) % len(EVIL)]}" + "&do=delete" * (name != "do")
            asking.ask("POST", addresses.filled(path), fields)
    assert asking.wrong == []
    assert _stored(site) == before
    assert [asked for asked in site.core.asked if asked[0] not in {"compute", "output"}] == []


def test_no_form_is_taken_without_its_token_or_from_another_site(site, visitor):
    with Asking(visitor) as asking:
        for page in addresses.of_method("POST"):
            path = addresses.filled(page.path)
            assert asking.ask("POST", path, "do=delete&id=1", **{"Sec-Fetch-Site": "cross-site"}) == 403, path
            if not page.signs_in:
                assert asking.ask("POST", path, "do=delete&id=1") == 403, path


def test_nobody_sees_a_page_that_is_not_for_everybody(site):
    for_all = {"/compare", "/sign-in", "/sign-in/oidc", "/sign-in/oidc/back", "/unsubscribe", "/shared/{secret}"}
    pages = [page for page in addresses.of_method("GET") if page.source(site.core.config)]
    with Asking(Visitor(site.port)) as stranger:
        shown = {page.path: stranger.ask("GET", addresses.filled(page.path)) for page in pages}
    assert {path for path, status in shown.items() if status != 401} <= for_all
    assert shown["/compare"] == 400  # which jobs, it asks first


@pytest.mark.parametrize("value", [value for value in EVIL if len(value) < 1000])
def test_a_cookie_that_makes_no_sense_signs_nobody_in(site, visitor, value):
    [name] = [name for name in visitor.cookies if "lang" not in name]
    assert Visitor(site.port, {name: value}).get("/jobs").status == 401


def test_an_empty_key_opens_nothing(site):
    """As cc-backend 1.5.4 did: a signature with the empty key, or with no algorithm, was believed."""
    nobody = Visitor(site.port)
    unsigned = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0."
    for credential in ("Bearer ", "Bearer", f"Bearer {unsigned}", "Basic cm9vdDo=", "Bearer null"):
        assert nobody.get("/api/v1/jobs", Authorization=credential).status == 401, credential


def test_no_other_site_may_read_an_answer(site, visitor):
    for path in ("/", "/api/v1/jobs", "/assets/portal.js", "/live/overview"):
        with_origin = HTTPConnection("127.0.0.1", site.port, timeout=20)
        cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
        with_origin.request("GET", path, headers={"Origin": "https://evil.example", "Cookie": cookie})
        reply = with_origin.getresponse()
        assert [name for name, _ in reply.getheaders() if name.lower().startswith("access-control")] == [], path
        with_origin.close()


@pytest.mark.parametrize("path", ["../", "..%2f", "%2e%2e/", "....//", "/", "%5c..%5c"])
def test_no_file_of_the_machine_is_an_asset(site, visitor, path):
    for place in ("/assets/", "/api/docs/", "/"):
        seen = visitor.get(f"{place}{path * 8}etc/passwd")
        assert (seen.status, "root:" in seen.text) == (404, False)


def test_the_secret_of_a_session_cannot_be_guessed(site):
    """As Open OnDemand's could, which was made of the host's name."""
    secrets = [next(iter(signed_in(site, OWNER).cookies.values())) for _ in range(3)]
    assert len(set(secrets)) == 3
    assert min(map(len, secrets)) >= 32
    assert len({secret[:4] for secret in secrets}) == 3


def test_names_of_files_are_shown_and_never_opened_by_the_portal(site, visitor):
    """As Open OnDemand did with markup and dots in names: what a job wrote is read on its node, as its owner."""
    name = "../../../../etc/passwd<script>alert(1)</script>"
    job = site.core.database.write(
        lambda tx: run(tx, add_job(tx, user=OWNER, uid=65534, stdout=name, directory="/home/nobody"), [1])
    )
    site.core.asked.clear()
    seen = visitor.get(f"/jobs/{job.id}/output")
    assert (seen.status, "root:x:" in seen.text, "<script>alert" in seen.text) == (200, False, False)
    assert [(asked[0], asked[3]) for asked in site.core.asked if asked[0] == "output"] == [("output", OWNER)]
