"""oarlock maintenance as a process."""

import json

from tests.canned import ok, refusal
from tests.cli.cluster.test_admin_commands import sent

WINDOW = {"id": 3, "name": "cooling", "start": 1000000, "stop": 1003600, "where": "core > 1", "by": "root"}


def test_a_window_is_added_and_those_it_meets_are_named(run, server):
    server.says(ok({"window": WINDOW, "resources": 8, "running": [4, 5], "reservations": [9]}))
    ran = run("oarlock", "maintenance", "add", "cooling", "1970-01-12 13:46:40", "1970-01-12 14:46:40", "n1", "n2")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "Maintenance 3: 8 resources.\n"
        "Jobs 4, 5 may still run when it begins; they are left alone.\n"
        "Jobs 9 were promised before; they are left alone.\n"
    )
    window = {"name": "cooling", "start": 1000000, "stop": 1003600, "nodes": ["n1", "n2"]}
    assert sent(server) == [("POST", "/maintenance", window)]


def test_a_window_may_be_about_a_condition_and_told_as_json(run, server):
    met = {"window": WINDOW, "resources": 8, "running": [], "reservations": []}
    server.says(ok(met))
    ran = run("oarlock", "maintenance", "add", "x", "2030-01-01", "2030-01-02", "--where", "core > 1", "-J")
    assert json.loads(ran.out) == met
    assert sent(server)[0][2]["where"] == "core > 1"


def test_windows_are_listed(run, server):
    server.says(ok({"windows": [WINDOW, {**WINDOW, "id": 12, "where": ""}]}))
    assert run("oarlock", "maintenance", "list").out == (
        "   3  1970-01-12 13:46:40 - 1970-01-12 14:46:40  cooling  (core > 1; by root)\n"
        "  12  1970-01-12 13:46:40 - 1970-01-12 14:46:40  cooling  (all resources; by root)\n"
    )
    server.says(ok({"windows": [WINDOW]}))
    assert json.loads(run("oarlock", "maintenance", "list", "--json").out) == [WINDOW]


def test_names_that_would_work_on_a_terminal_are_shown(run, server):
    server.says(ok({"windows": [{**WINDOW, "name": "\x1b[2J\x9b31m"}]}))
    assert "  \\x1b[2J\\x9b31m  (core > 1; by root)\n" in run("oarlock", "maintenance", "list").out


def test_a_window_is_removed_or_the_refusal_is_told(run, server):
    server.says(ok({}))
    assert run("oarlock", "maintenance", "remove", "3").out == "Maintenance 3 is removed.\n"
    server.says(refusal(404, "UnknownWindow", "There is no maintenance 3.", "List them."))
    ran = run("oarlock", "maintenance", "remove", "3")
    assert (ran.code, ran.err) == (2, "oarlock: There is no maintenance 3.\n  List them.\n")


def test_a_bad_date_is_refused(run):
    ran = run("oarlock", "maintenance", "add", "x", "soon", "2030-01-02")
    assert (ran.code, ran.err) == (2, 'oarlock: START: `soon` is not a date.\n  Write it as "YYYY-MM-DD hh:mm:ss".\n')


def test_config_refuses_a_bad_file_of_quotas(run, tmp_path):
    (tmp_path / "quotas.json").write_text('{"quotas": {"*,*": 3}}')
    (tmp_path / "oar.conf").write_text(f"QUOTAS=yes\nQUOTAS_CONF_FILE={tmp_path}/quotas.json\n")
    ran = run("oarlock", "config", str(tmp_path / "oar.conf"))
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(
        f"oarlock: {tmp_path}/quotas.json: `*,*` does not say whom a quota is for.\n  Write queue"
    )
