"""Texts that a database, a shell, a terminal, a log or a page would obey go through every field as what they are."""

import json
import os
import re
import subprocess
import sys
from urllib.parse import quote

import pytest

from tests.bed import needs_root
from tests.e2e.attacker import INJECTIONS
from tests.e2e.instance import SOURCE

pytestmark = [needs_root, pytest.mark.soak, pytest.mark.hostile, pytest.mark.timeout(900)]

TEXT_FIELDS = (
    *(
        "name",
        "project",
        "queue",
        "properties",
        "directory",
        "launched_from",
        "submitted_from",
        "stdout",
        "stderr",
        "notify",
    ),
    *("initial_request", "reservation", "import_key", "public_key"),
)
LIST_FIELDS = ("types", "resources")


def submissions(home: str):
    """A submission for each field and each text."""
    good = {"command": "true", "resources": ["/core=1,walltime=0:1:0"], "directory": home}
    for text in INJECTIONS:
        for field in TEXT_FIELDS:
            yield ("POST", "/api/v1/jobs", {**good, field: text})
        for field in LIST_FIELDS:
            yield ("POST", "/api/v1/jobs", {**good, field: [text]})
        yield ("POST", "/api/v1/jobs", {**good, "environment": {text: "x"}})
        yield ("POST", "/api/v1/jobs", {**good, "environment": {"X": text}})


def test_no_text_of_a_submission_is_obeyed(site, ask, two_users):
    attacker, other = two_users
    answers = ask(attacker, list(submissions(str(site.home))))
    assert {status for status, _ in answers} <= {200, 400, 403, 404, 409, 413, 422}
    taken = [number for status, text in answers if status == 200 for number in json.loads(text)["job_ids"]]
    assert len(taken) > 20  # what is harmless as a name is taken as it is
    site.until(site.all_over, seconds=120)
    assert not list(site.home.rglob("pwned"))
    log = site.log()
    assert not re.search(r"^ERROR forged line", log, re.MULTILINE)
    assert "\x1b" not in log
    shown = ask(other, [("GET", f"/api/v1/jobs/{number}", None) for number in taken])
    assert {status for status, _ in shown} == {200}
    [(status, page)] = ask(other, [("GET", "/jobs?states=Terminated,Error,Waiting", None)])
    assert status == 200
    assert "<script>alert" not in page


QUESTIONS = ("where", "name", "project", "queue", "user", "node", "states", "after", "order", "limit")


def test_no_text_of_a_question_is_obeyed(site, ask, two_users):
    site.submit("true")
    words = [f"{way}={quote(text)}" for way in QUESTIONS for text in INJECTIONS]
    answers = ask(two_users[1], [("GET", f"/api/v1/jobs?{word}", None) for word in words])
    assert {status for status, _ in answers} <= {200, 400, 404, 413}
    pages = ask(two_users[1], [("GET", f"/jobs?{word}", None) for word in words])
    assert {status for status, _ in pages} <= {200, 400, 401, 403, 404, 413}
    assert not [text for _, text in pages if "<script>alert" in text]
    [(status, text)] = ask(two_users[1], [("GET", "/api/v1/jobs", None)])
    assert (status, len(json.loads(text)["jobs"])) == (200, 1)


def test_the_database_is_whole_after_all_of_it(site, ask, two_users):
    ask(two_users[0], list(submissions(str(site.home))))
    site.until(site.all_over, seconds=120)
    site.stop()
    command = [sys.executable, "-m", "oarlock", "check", "--state", site.state, "--config", site.settings]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(SOURCE)}
    )
    assert done.returncode == 0, done.stdout + done.stderr
