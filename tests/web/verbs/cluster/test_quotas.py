"""Quotas: what is allowed and used, as everybody sees it and administrators set it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from tests.clusters import NOW, add_nodes
from tests.store.cluster import add_job, run
from tests.web.nodeless_server import Running, running

HOUR = 3600


def _fill(tx: Tx) -> None:
    """Let three jobs run: two cores of ada's, one of bob's, one best-effort core of ada's; each for an hour."""
    add_nodes(tx, ["node1", "node2"])
    run(tx, add_job(tx, "/core=2,walltime=1", user="ada", project="waves"), [1, 2], at=NOW)
    run(tx, add_job(tx, "/core=1,walltime=1", user="bob", project="waves"), [3], at=NOW)
    run(tx, add_job(tx, "/core=1,walltime=1", user="ada", types=("besteffort",)), [4], at=NOW)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "quotas.json"
    path.write_text(
        json.dumps({"quotas": {"*,*,*,/": [4, -1, -1], "*,waves,*,*": [-1, -1, 8], "*,*,*,bob": [2, 1, -1]}})
    )
    return path


@pytest.fixture
def api(database: Database, file: Path) -> Iterator[Running]:
    database.write(_fill)
    with running(database, quotas=True, quotas_conf_file=file) as api:
        yield api


def _use(api: Running, query: str = "") -> list[tuple[str, list[tuple[object, ...]]]]:
    """Give each rule with whom it counts: resources, jobs, hours."""
    body = api.client.get(f"/quotas{query}").body
    return [
        (
            rule["rule"],
            [(one["whose"], one["besteffort"], one["resources"], one["jobs"], one["resource_hours"])
             for one in rule["used"]],
        )
        for rule in body["rules"]
    ]  # fmt: skip


def test_rules_are_shown_with_who_uses_how_much(api: Running, file: Path):
    assert _use(api) == [
        ("*,*,*,/", [("*,*,*,ada", False, 2, 1, 2), ("*,*,*,ada", True, 3, 2, 3)]),
        ("*,waves,*,*", [("*,waves,*,*", False, 3, 2, 3)]),
        ("*,*,*,bob", [("*,*,*,bob", False, 1, 1, 1)]),
    ]
    body = api.client.get("/quotas").body
    assert {name: body[name] for name in ("at", "file", "problem", "set", "until")} == {
        "at": NOW, "file": str(file), "problem": "", "set": "quotas", "until": None
    }  # fmt: skip
    assert body["rules"][1] == {
        "rule": "*,waves,*,*", "number": None, "resources": None, "jobs": None, "resource_hours": 8.0,
        "used": [{
            "whose": "*,waves,*,*", "resources": 3, "jobs": 2, "resource_hours": 3.0,
            "resources_by_user": {"ada": 2, "bob": 1}, "job_ids": [1, 2], "besteffort": False,
        }],
    }  # fmt: skip


def test_one_user_sees_what_concerns_them_at_an_instant(api: Running):
    assert [rule for rule, _ in _use(api, "?user=bob")] == ["*,*,*,/", "*,waves,*,*", "*,*,*,bob"]
    assert [rule for rule, _ in _use(api, "?user=ada")] == ["*,*,*,/", "*,waves,*,*"]
    assert _use(api, "?user=cleo") == [("*,*,*,/", []), ("*,waves,*,*", [("*,waves,*,*", False, 3, 2, 3)])]
    assert [used for _, used in _use(api, f"?at={NOW + 2 * HOUR}")] == [[], [], []]


def test_a_quota_of_the_table_holds_beside_the_file(api: Running):
    assert api.client.post("/quotas", {"rule": "*,*,*,*", "jobs": 9}).body == {"number": 1}
    assert api.client.post("/quotas", {"rule": "default,*,*,/", "resource_hours": 2}).body == {"number": 2}
    assert api.client.post("/quotas", {"rule": "*,*,*,*", "jobs": 7}).body == {"number": 1}
    rules = api.client.get("/quotas").body["rules"]
    assert [(one["number"], one["rule"], one["jobs"], one["resource_hours"]) for one in rules[:2]] == [
        (1, "*,*,*,*", 7, None),
        (2, "default,*,*,/", None, 2.0),
    ]
    assert api.client.delete("/quotas/1").status == 200
    assert next(rule for rule, _ in _use(api)) == "default,*,*,/"
    gone = api.client.delete("/quotas/1")
    assert (gone.status, gone.body["kind"]) == (404, "UnknownQuota")


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("*,*", "`*,*` does not say whom a quota is for."),
        ("*,*,/,*", "`*,*,/,*`: types cannot be counted each by itself."),
    ],
)
def test_a_quota_that_cannot_be_is_refused_with_a_sentence(api: Running, rule: str, says: str):
    reply = api.client.post("/quotas", {"rule": rule, "jobs": 1})
    assert (reply.status, reply.body["error"]) == (400, says)


def test_a_quota_without_a_limit_is_refused(api: Running):
    reply = api.client.post("/quotas", {"rule": "*,*,*,/"})
    assert (reply.status, reply.body["error"]) == (400, "The quota `*,*,*,/` limits nothing.")


def test_a_changed_file_that_is_bad_is_told_and_what_held_holds(api: Running, file: Path):
    before = _use(api)
    file.write_text("{}}")
    assert _use(api) == before
    assert "not JSON" in api.client.get("/quotas").body["problem"]
