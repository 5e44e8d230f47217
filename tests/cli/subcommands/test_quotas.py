"""oarlock quotas as a process."""

import json

from tests.canned import ok, refusal
from tests.cli.cluster.test_admin_commands import sent

ADA = {
    "whose": "*,*,*,ada", "resources": 12, "jobs": 3, "resource_hours": 24.5, "resources_by_user": {"ada": 12},
    "job_ids": [1, 2, 3], "besteffort": False,
}  # fmt: skip
MANY = {**ADA, "whose": "*,*,*,*", "besteffort": True, "resources_by_user": {f"u{n}": 9 - n for n in range(7)}}
RULES = [
    {"rule": "*,*,*,/", "number": 3, "resources": 64, "jobs": None, "resource_hours": None, "used": [ADA]},
    {"rule": "*,*,*,*", "number": None, "resources": None, "jobs": 9, "resource_hours": 100.5, "used": [MANY]},
    {"rule": "/,*,*,*", "number": None, "resources": 5, "jobs": None, "resource_hours": None, "used": []},
]
HELD = {"at": 1000000, "file": "/etc/quotas.json", "problem": "", "set": "night", "until": 1000800, "rules": RULES}


def test_rules_are_a_table_of_what_is_used_and_allowed(run, server):
    server.says(ok(HELD))
    ran = run("oarlock", "quotas")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "Of /etc/quotas.json, the rules `night` hold until 1970-01-12 14:00:00.\n"
        "No Rule    For              Resources Jobs Resource-hours By (resources)\n"
        "-- ------- ---------------- --------- ---- -------------- -------------------------------\n"
        "3  *,*,*,/ ada              12/64     3/-  24.5/-         ada 12\n"
        "   *,*,*,* all (besteffort) 12/-      3/9  24.5/100.5     u0 9, u1 8, u2 7, u3 6, u4 5, …\n"
        "   /,*,*,* each             0/5       0/-  0/-\n"
    )


def test_a_user_and_a_date_are_asked_of_the_server(run, server):
    server.says(ok({**HELD, "rules": [], "file": None}))
    ran = run("oarlock", "quotas", "--user", "ada", "--at", "1970-01-12 13:46:40")
    assert ran.out.startswith("No quota speaks of ada. `oarlock quotas add` sets one;")
    assert server.requests[0].path == "/api/v1/quotas?user=ada&at=1000000"


def test_a_problem_with_the_changed_file_comes_first(run, server):
    server.says(ok({**HELD, "problem": "The quotas in /etc/quotas.json are not JSON."}))
    first, *_ = run("oarlock", "quotas").out.splitlines()
    assert first == (
        "The changed file is not used; what it said before holds. The quotas in /etc/quotas.json are not JSON."
    )
    assert json.loads(run("oarlock", "quotas", "-J").out)["set"] == "night"


def test_quotas_are_added_and_removed_or_the_refusal_is_told(run, server):
    server.says(ok({"number": 4}))
    assert run("oarlock", "quotas", "add", "*,*,*,/", "--jobs", "3").out == "Quota 4 holds from now on.\n"
    quota = {"rule": "*,*,*,/", "resources": -1, "jobs": 3, "resource_hours": -1}
    assert sent(server) == [("POST", "/quotas", quota)]
    server.says(refusal(404, "UnknownQuota", "There is no quota 9 in the table.", "List them."))
    ran = run("oarlock", "quotas", "--server", server.address, "remove", "9", OARLOCK_SERVER="/nowhere")
    assert (ran.code, ran.err) == (2, "oarlock: There is no quota 9 in the table.\n  List them.\n")
    assert (server.requests[-1].method, server.requests[-1].path) == ("DELETE", "/api/v1/quotas/9")


def test_a_file_is_checked_before_it_is_used(run, tmp_path):
    file = tmp_path / "quotas.json"
    file.write_text('{"quotas": {"*,*,*,/": 3, "*,*,*,*": 9}, "nigth": {}}')
    ran = run("oarlock", "quotas", "check", str(file), OARLOCK_SERVER="/nowhere")
    assert (ran.code, ran.err) == (0, "")
    assert (
        ran.out == f"The rules `nigth` never hold: no period names them.\n{file} can be used. Rules: 2, in sets: 2.\n"
    )


def test_every_mistake_of_a_file_is_a_sentence_with_a_way_out(run, tmp_path):
    file = tmp_path / "quotas.json"
    file.write_text('{"quotas": {"*,*": 3, "*,*,*,*": "x"}}')
    ran = run("oarlock", "quotas", "check", str(file))
    assert (ran.code, ran.out.splitlines()[::2]) == (
        2,
        ["`*,*` does not say whom a quota is for.", "The quota `*,*,*,*` has the limit `x`, which is none."],
    )
    assert ran.err == f"oarlock: {file} has 2 mistakes and would not be used.\n  Correct the file, and check again.\n"
    ran = run("oarlock", "quotas", "check", "absent.json")
    assert (ran.code, ran.err.splitlines()[0]) == (
        2,
        "oarlock: The quotas in absent.json cannot be read: No such file or directory.",
    )
