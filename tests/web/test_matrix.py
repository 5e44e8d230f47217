"""Who may what: every verb, asked by everybody, through every front end, against what is written here."""

import os
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pytest

from oarlock.config import Config
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.site import administration
from oarlock.store.queries.users import user_records
from oarlock.web.identity import token_hash
from oarlock.web.policy import AccessPolicy, RequiredRole
from oarlock.web.registry import VERBS
from oarlock.web.verbs import __all__ as _registered  # noqa: F401
from tests.clusters import add_nodes
from tests.store.cluster import add_job
from tests.web.nodeless_server import NOW, Client, Running, running

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")

OWNER, OTHER, ADMIN, LEADER, SUPPORT = "nobody", "daemon", "root", "sys", "bin"
ROLES = {"support": ("@bin",), "project_leaders": {"default": ("games", LEADER)}}
NAMELESS = 64321  # a user id that no user has
CALLERS = ("anonymous", "other", "leader", "support", "owner", "admin")
FRONTS = ("socket", "port")
USER_OF = {"other": OTHER, "leader": LEADER, "support": SUPPORT, "owner": OWNER, "admin": ADMIN}

YES, NO, WHO = "allowed", "Forbidden", "NotSignedIn"
EVERYBODY = (YES, YES, YES, YES, YES, YES)
USERS = (WHO, YES, YES, YES, YES, YES)
OWNERS = (WHO, NO, NO, NO, YES, YES)
ADVISERS = (WHO, NO, YES, YES, YES, YES)
HELPERS = (WHO, NO, NO, YES, YES, YES)
SUBMITTERS = (WHO, YES, YES, YES, YES, "SubmitterRefused")
STAFF = (WHO, NO, NO, YES, NO, YES)
ADMINS = (WHO, NO, NO, NO, NO, YES)
SCOPED = (WHO, NO, NO, NO, NO, NO)  # only tokens that were made for it

# verb: what to ask; the answers to anonymous, another user, a leader of the project, support, owner, administrator
MATRIX: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "version": ("/version", None, EVERYBODY),
    "jobs.list": ("/jobs", None, USERS),
    "jobs.show": ("/jobs/1", None, USERS),
    "jobs.events": ("/jobs/1/events", None, USERS),
    "jobs.story": ("/jobs/1/story", None, USERS),
    "jobs.usage": ("/jobs/1/usage", None, USERS),
    "usage.list": ("/usage?ids=1", None, USERS),
    "usage.days": ("/usage/days?by=user,project", None, USERS),
    "jobs.series": ("/jobs/1/series", None, ADVISERS),
    "jobs.findings": ("/jobs/1/findings", None, ADVISERS),
    "jobs.report": ("/jobs/1/report", None, ADVISERS),
    "jobs.report_pdf": ("/jobs/1/report.pdf", None, ADVISERS),
    "jobs.samples": ("/jobs/1/samples", None, ADVISERS),
    "jobs.script": ("/jobs/1/script", None, HELPERS),
    "reports.period": (f"/reports/period?user={OWNER}", None, OWNERS),
    "reports.period_pdf": (f"/reports/period.pdf?user={OWNER}", None, OWNERS),
    "usage.profile": (f"/usage/profile?user={OWNER}", None, USERS),
    "storage.show": ("/storage", None, USERS),
    "storage.series": ("/storage/series", None, USERS),
    "storage.space": ("/storage/space", None, USERS),
    "cloud.show": ("/cloud", None, USERS),
    "cloud.series": ("/cloud/series", None, USERS),
    "software.show": ("/software", None, USERS),
    "energy.factors": ("/energy/factors", None, USERS),
    "jobs.output": ("/jobs/1/output", None, OWNERS),
    "shares.add": ("/shares", {"job": 1}, OWNERS),
    "shares.list": ("/shares", None, USERS),
    "shares.revoke": ("/shares/000000000000", None, USERS),
    "views.list": ("/views", None, USERS),
    "views.save": ("/views", {"name": "x", "query": ""}, USERS),
    "views.remove": ("/views/x", None, USERS),
    "notices.list": ("/notices", None, USERS),
    "notices.add": ("/notices", {"says": "x"}, ADMINS),
    "notices.remove": ("/notices/{}", None, ADMINS),
    "roles.show": ("/roles", None, ADMINS),
    "rules.dry-run": ("/rules/dry-run", {"rule": "x"}, ADMINS),
    "waste.findings": ("/waste/findings", None, STAFF),
    "waste.snooze": ("/waste/snoozes", {"rule": "x", "user": OWNER, "reason": "x"}, STAFF),
    "waste.unsnooze": ("/waste/snoozes/{}", None, STAFF),
    "advice.send": ("/advice", {"rule": "x", "user": OWNER}, STAFF),
    "advice.list": ("/advice", None, USERS),
    "mail.choices": ("/mail/choices", None, USERS),
    "mail.choose": ("/mail/choices", {"kind": "week", "wanted": True}, USERS),
    "digests.preview": ("/digests/preview", {}, ADMINS),
    "agents.jobs": ("/agents/jobs", None, USERS),
    "samples.add": ("/samples?node=desk1", b"", SCOPED),
    "scripts.add": ("/jobscripts", {"id_job": 1, "submit_script": "x"}, SCOPED),
    "scripts.put": ("/jobscripts/1", b"x", SCOPED),
    "jobs.pin": ("/jobs/pin", {"id": 1}, OWNERS),
    "jobs.unpin": ("/jobs/1/pin", None, OWNERS),
    "jobs.purge": ("/jobs/purge", {"before": 1, "count_only": True}, ADMINS),
    "pins.list": ("/pins", None, USERS),
    "nodes.measure": ("/nodes/measure", {"nodes": ["node1"], "period": 1}, ADMINS),
    "nodes.series": ("/nodes/node1/series", None, USERS),
    "events.list": ("/events?nodes=node1", None, USERS),
    "audit.list": ("/audit", None, ADMINS),
    "metrics": ("/metrics", None, EVERYBODY),
    "prometheus.targets": ("/prometheus/targets", None, EVERYBODY),
    "jobs.why": ("/jobs/1/why", None, USERS),
    "jobs.resources": ("/jobs/1/resources", None, USERS),
    "jobs.submit": ("/jobs", {"command": "true"}, SUBMITTERS),
    "jobs.advise": ("/jobs/advise", {"command": "true"}, SUBMITTERS),
    "jobs.dry-run": ("/jobs/dry-run", {"command": "true"}, SUBMITTERS),
    "jobs.delete": ("/jobs/delete", {"ids": [1]}, OWNERS),
    "jobs.hold": ("/jobs/hold", {"ids": [1]}, OWNERS),
    "jobs.resume": ("/jobs/resume", {"ids": [1]}, OWNERS),
    "jobs.walltime": ("/jobs/1/walltime", None, OWNERS),
    "jobs.monitor": ("/jobs/monitor", {"id": 1, "period": 10}, ADMINS),
    "jobs.monitoring-status": ("/jobs/1/monitoring/status", None, ADMINS),
    "jobs.monitoring": ("/jobs/1/monitoring", None, OWNERS),
    "jobs.change-walltime": ("/jobs/walltime", {"id": 1, "walltime": "+1"}, OWNERS),
    "queues.change": ("/queues/change", {"name": "unused"}, ADMINS),
    "server.notify": ("/notify", {"tag": "Term"}, ADMINS),
    "rules.list": ("/rules", None, ADMINS),
    "rules.add": ("/rules", {"rule": "x"}, ADMINS),
    "rules.change": ("/rules/change", {"id": 1, "enabled": False}, ADMINS),
    "rules.remove": ("/rules/{}", None, ADMINS),
    "resources.list": ("/resources", None, USERS),
    "resources.add": ("/resources", {"host": "node9"}, ADMINS),
    "resources.state": ("/resources/state", {"state": "Absent", "ids": [1]}, ADMINS),
    "resources.properties": ("/resources/properties", {"properties": {"cpuset": 3}, "ids": [1]}, ADMINS),
    "resources.remove": ("/resources/{}", None, ADMINS),
    "properties.list": ("/properties", None, USERS),
    "properties.add": ("/properties", {"name": "added{}", "kind": "int"}, ADMINS),
    "properties.rename": ("/properties/rename", {"old": "core", "new": "core"}, ADMINS),
    "properties.remove": ("/properties/core", None, ADMINS),
    "queues.list": ("/queues", None, USERS),
    "queues.add": ("/queues", {"name": "added{}"}, ADMINS),
    "queues.start": ("/queues/start", {}, ADMINS),
    "queues.stop": ("/queues/stop", {}, ADMINS),
    "queues.remove": ("/queues/unused", None, ADMINS),
    "maintenance.list": ("/maintenance", None, USERS),
    "maintenance.add": ("/maintenance", {"name": "x", "start": NOW, "stop": NOW + 9}, ADMINS),
    "maintenance.remove": ("/maintenance/{}", None, ADMINS),
    "check.live": ("/check/live", None, ADMINS),
    "unknown.list": ("/unknown", None, ADMINS),
    "unknown.end": ("/unknown/{}", None, ADMINS),
    "quotas.list": ("/quotas", None, USERS),
    "quotas.add": ("/quotas", {"rule": "*,*,*,/", "jobs": 3}, ADMINS),
    "quotas.remove": ("/quotas/{}", None, ADMINS),
    "files.find": ("/files?md5sum=" + "0" * 32, None, SUBMITTERS),
    "files.add": ("/files?size=1", None, SUBMITTERS),
    "sessions.connect": ("/sessions", None, USERS),
    "desktops.connect": ("/desktops", None, SCOPED),
    "accounting.update": ("/accounting", {}, ADMINS),
    "energy.show": ("/energy?by=user", None, USERS),
    "findings.list": ("/findings", None, USERS),
    "waste.show": ("/waste", None, STAFF),
    "sources.health": ("/sources", None, ADMINS),
    "findings.rules": ("/findings/rules", None, USERS),
    "accounting.show": ("/accounting", None, USERS),
    "gantt": ("/gantt?since=0&until=9", None, USERS),
    "overview": ("/overview", None, USERS),
    "scheduler.show": ("/scheduler", None, USERS),
    "scheduler.exporter": ("/scheduler/exporter", None, USERS),
    "jobs.prediction": ("/jobs/1/prediction", None, USERS),
    "jobs.efficiency": ("/jobs/efficiency?ids=1", None, USERS),
    "browser.link": ("/browser/link", {}, USERS),
    "browser.list": ("/browser/sessions", None, USERS),
    "browser.revoke": ("/browser/sessions/000000000000", None, USERS),
    "tokens.add": ("/tokens", {"name": "made{}"}, USERS),
    "tokens.list": ("/tokens", None, USERS),
    "tokens.revoke": ("/tokens/spare", None, USERS),
}
ELSEWHERE = {  # where a front end makes a difference, or a token for a node is needed
    **{(name, "port"): SCOPED for name in ("tokens.add", "browser.link")},
    **{("desktops.connect", front): SCOPED for front in FRONTS},
}


@pytest.fixture
def api(database: Database) -> Iterator[Running]:
    database.write(_fill)
    with running(database, job_min_uid=1, **ROLES) as api:
        yield api


def _fill(tx: Tx) -> None:
    add_nodes(tx, ["node1"])
    add_job(tx, user=OWNER)
    administration.add_queue(tx, administration.Queue("unused", 1, "fifo"))
    resources.add(tx, [{"network_address": "gone", "state": "Dead"}], at=NOW)
    for user in USER_OF.values():
        for label in ("spare", "key"):
            user_records.add_token(
                tx, user_records.StoredToken(token_hash(f"{label} of {user}"), user, label, NOW, NOW + 60)
            )


def _client(api: Running, caller: str, front: str) -> Client:
    user = USER_OF.get(caller)
    if front == "port":
        return api.client_at_port(f"key of {user}" if user else "")
    return api.client_of(user or NAMELESS)


def _verdict(client: Client, connection: HTTPConnection, method: str, path: str, body: Any) -> str:
    reply = client.ask_on(connection, method, path, body)
    if reply.status in {200, 201}:
        [told] = reply.body["jobs"] if body == {"ids": [1]} else [{"done": True}]
        return YES if told["done"] else told["kind"]
    return (
        reply.body["kind"] if reply.body["kind"] in {NO, WHO, "SubmitterRefused"} else YES
    )  # refused for what it asks, not for who asks


def test_every_verb_stands_in_the_matrix():
    assert set(MATRIX) == set(VERBS)


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("caller", CALLERS)
def test_everybody_may_what_is_written_and_nothing_else(api: Running, caller: str, front: str):
    client = _client(api, caller, front)
    place = CALLERS.index(caller)
    written = {name: ELSEWHERE.get((name, front), verdicts)[place] for name, (_, _, verdicts) in MATRIX.items()}
    assert _verdicts(client) == written


def _verdicts(client: Client) -> dict[str, str]:
    """Ask everything, over one connection: to make one as another user takes a process."""
    with client.connected() as connection:
        return {
            name: _verdict(client, connection, VERBS[name].method, path.format(3), _filled(body))
            for name, (path, body, _) in MATRIX.items()
        }


def _filled(body: Any) -> Any:
    if not isinstance(body, dict):
        return body
    return {key: value.format("x") if isinstance(value, str) else value for key, value in body.items()}


def test_a_token_of_a_node_opens_nothing_that_is_not_a_nodes(api: Running):
    """Also where its administrator may; those who may not make one are refused."""
    made = api.client_of(ADMIN).post("/tokens", {"name": "desk", "node": "desk1"}).body["token"]
    refused = api.client_of(OWNER).post("/tokens", {"name": "desk", "node": "desk1"})
    assert (refused.status, refused.body["error"]) == (403, "Only administrators may do this; nobody is not one.")
    nodes = {name for name, verb in VERBS.items() if verb.role is RequiredRole.NODES}
    found = _verdicts(api.client_at_port(made))
    assert found == {name: YES if name in nodes | {"version"} else NO for name in MATRIX}
    listed = api.client_of(ADMIN).get("/tokens").body["tokens"]
    assert {token["name"]: token["node"] for token in listed} == {"spare": None, "key": None, "desk": "desk1"}


def test_a_token_for_scripts_opens_nothing_but_scripts(api: Running):
    made = api.client_of(ADMIN).post("/tokens", {"name": "pusher", "scripts": True, "cluster": "alpha"}).body["token"]
    refused = api.client_of(OWNER).post("/tokens", {"name": "pusher", "scripts": True})
    assert (refused.status, refused.body["error"]) == (403, "Only administrators may do this; nobody is not one.")
    found = _verdicts(api.client_at_port(made))
    assert {name for name, verdict in found.items() if verdict == YES} == {"version", "scripts.add", "scripts.put"}
    [listed] = [token for token in api.client_of(ADMIN).get("/tokens").body["tokens"] if token["name"] == "pusher"]
    assert (listed["node"], listed["scripts"], listed["cluster"]) == (None, True, "alpha")


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("caller", CALLERS)
def test_a_server_of_one_user_serves_nobody_else(database: Database, caller: str, front: str):
    database.write(_fill)
    with running(database, site=AccessPolicy(Config(**ROLES), frozenset({OWNER}), only=OWNER)) as api:
        found = _verdicts(_client(api, caller, front))
    wanted = {"anonymous": WHO, "owner": YES}.get(caller, NO)
    assert found == {name: _of_one_user(name, front, wanted)[CALLERS.index(caller)] for name in MATRIX}


def _of_one_user(name: str, front: str, wanted: str) -> tuple[str, ...]:
    if name == "version":
        return EVERYBODY
    return ELSEWHERE.get((name, front), MATRIX[name][2] if MATRIX[name][2] == SCOPED else (WHO, NO, NO, NO, wanted, NO))
