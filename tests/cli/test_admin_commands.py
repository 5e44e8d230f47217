"""oarnodesetting, oarproperty, oarremoveresource, oaraccounting and oarnotify as processes."""

import os

import pytest

from tests.canned import ok, refusal
from tests.cli.conftest import Ran, golden

KINDS = {
    "host": "str",
    "cpu": "int",
    "core": "int",
    "mem": "int",
    "cm_availability": "int",
    "note": "str",
    "drain": "str",
}


def sent(server):
    """Give the changes that were asked for."""
    changes = [request for request in server.requests if request.method != "GET"]
    return [(request.method, request.path.removeprefix("/api/v1"), request.json) for request in changes]


@pytest.fixture(autouse=True)
def properties(server):
    """The server knows the kinds of properties."""
    server.by_path["GET /api/v1/properties"] = ok({"properties": KINDS, "system": []})


def test_a_resource_is_added_with_its_properties(run, server):
    server.says(ok({"resource_ids": [33]}))
    assert run("oarnodesetting", "-a", "-h", "node5", "-p", "host=node5", "-p", "cpu=9", "-p", "core=33") == golden(
        "nset_add"
    )
    properties = {"host": "node5", "cpu": 9, "core": 33}
    assert sent(server) == [("POST", "/resources", {"host": "node5", "properties": properties})]


def test_a_resource_is_added_in_a_state(run, server):
    server.says(ok({"resource_ids": [34]}))
    assert run("oarnodesetting", "-a", "-h", "node6", "-s", "Dead", "-p", "cpu=10") == golden("nset_add_state")
    assert sent(server)[0][2]["state"] == "Dead"


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["-r", "33", "-r34"], {"ids": [33, 34]}),
        (["--sql", "host='node5'"], {"where": "host='node5'"}),
        (["-h", "node5"], {"nodes": ["node5"]}),
        (["-f", "nodes.txt"], {"nodes": ["node1", "node2"]}),
        ([], {"nodes": [os.uname().nodename]}),
    ],
)
def test_properties_are_set_on_what_was_chosen(run, server, tmp_path, words, chosen):
    (tmp_path / "nodes.txt").write_text("node1\nnode2\n")
    server.says(ok({"resource_ids": [33]}))
    assert run("oarnodesetting", *words, "-p", "mem=256") == golden("nset_sql")
    assert sent(server) == [("POST", "/resources/properties", {"properties": {"mem": 256}} | chosen)]


def test_a_value_may_hold_an_equals_sign(run, server):
    server.says(ok({"resource_ids": [1]}))
    run("oarnodesetting", "-r", "1", "-p", "note = a=b ")
    assert sent(server)[0][2]["properties"] == {"note": "a=b"}


def test_values_have_the_kind_of_their_property(run, server):
    server.says(ok({"resource_ids": [1]}))
    words = ["note=12", "cpu=-3", "core=many", "mem=", "bogus=7"]
    ran = run("oarnodesetting", "-r", "1", *(word for text in words for word in ("-p", text)))
    assert sent(server)[0][2]["properties"] == {"note": "12", "cpu": -3, "core": "many", "mem": None, "bogus": "7"}
    assert "Set property mem to ''... 1 resource(s) updated.\n" in ran.out


def test_a_node_goes_away_at_once_where_no_job_runs(run, server):
    server.says(ok({"resource_ids": [33], "jobs": []}))
    assert run("oarnodesetting", "-h", "node5", "-s", "Absent") == golden("nset_h_absent")
    assert sent(server) == [("POST", "/resources/state", {"state": "Absent", "now": False, "nodes": ["node5"]})]


def test_a_node_that_goes_away_is_waited_for(run, server):
    server.says(
        ok({"resource_ids": [25], "jobs": [123]}),
        ok({"jobs": [{"Job_Id": 123, "stopTime": 0}]}),
        ok({"jobs": [{"Job_Id": 123, "stopTime": 1794766593}]}),
    )
    assert run("oarnodesetting", "-h", "node4", "-s", "Absent").out == golden("nsj_absent_wait").out
    assert [request.path for request in server.requests[1:]] == ["/api/v1/jobs?ids=123"] * 2


def test_n_does_not_wait(run, server):
    server.says(ok({"resource_ids": [25], "jobs": [123]}))
    assert run("oarnodesetting", "-n", "-r", "25", "-s", "Dead") == Ran(0, "25 --> Dead\n", "")
    assert sent(server) == [("POST", "/resources/state", {"state": "Dead", "now": True, "ids": [25]})]


def test_maintenance_is_a_state_and_a_property_of_the_same_resources(run, server):
    server.says(ok({"resource_ids": [25, 26], "jobs": []}))
    ran = run("oarnodesetting", "--sql", "state='Alive'", "-m", "on")
    assert ran.code == 0
    assert sent(server) == [
        ("POST", "/resources/state", {"state": "Absent", "now": False, "where": "state='Alive'"}),
        ("POST", "/resources/properties", {"properties": {"cm_availability": 0}, "ids": [25, 26]}),
    ]
    server.requests.clear()
    run("oarnodesetting", "-r", "25", "-m", "off")
    assert sent(server) == [("POST", "/resources/state", {"state": "Alive", "now": False, "ids": [25]})]


def test_draining_is_a_property(run, server):
    server.says(ok({"resource_ids": [25]}))
    assert run("oarnodesetting", "-h", "n", "-d", "on").out == "Set property drain to 'YES'... 1 resource(s) updated.\n"


def test_the_highest_value_of_a_property_is_told(run, server):
    server.says(ok({"resources": [{"core": 9}, {"core": 33}, {"core": None}], "jobs": {}}))
    assert run("oarnodesetting", "--last-property-value", "core") == golden("nset_last")
    assert run("oarnodesetting", "--last-property-value", "cors").code == 1


@pytest.mark.parametrize(
    ("words", "name", "told"),
    [
        ([], "nset_none", "Nothing is asked for.\n  Give -a, -s, -m, -d or -p.\n"),
        (["node5"], "nset_none", "`node5` is no option.\n  -h node5 names a node.\n"),
        (["-a", "-s", "Suspected"], "nset_add_badstate",
         "`Suspected` is no state to ask for.\n  Ask for Alive, Absent, Dead.\n"),
        (["-r", "33", "-p", "foo"], "nset_p_badsyntax", "`foo` is no property.\n  Write it as NAME=VALUE.\n"),
        (["-m", "maybe"], "nset_none", "--maintenance is on or off, not `maybe`.\n  Write --maintenance=on.\n"),
        (["-m", "on", "-s", "Dead"], "nset_none", "-m and -s cannot be given together.\n  -m sets the state itself.\n"),
        (["-h", "a", "-r", "1", "-s", "Dead"], "nset_none",
         "-h, -r and --sql cannot be given together.\n  Choose one of them.\n"),
        (["-a", "-r", "1"], "nset_none", "-a adds a resource; -r and --sql choose some.\n  Leave out one of them.\n"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_meant_is_refused(run, server, words, name, told):
    assert run("oarnodesetting", *words) == Ran(golden(name).code, "", f"oarnodesetting: {told}")
    assert server.requests == []


def test_a_condition_that_fits_nothing_is_told(run, server):
    server.says(ok({"resource_ids": [], "jobs": []}))
    expected = Ran(
        golden("nset_sql_none").code, "",
        "oarnodesetting: No resource fits `host='zzz'`.\n  `oarnodes --sql` tries a condition.\n",
    )  # fmt: skip
    assert run("oarnodesetting", "--sql", "host='zzz'", "-p", "mem=256") == expected
    assert run("oarnodesetting", "--sql", "host='zzz'", "-s", "Dead") == expected


def test_a_column_of_the_system_is_refused_with_oars_code(run, server):
    server.says(refusal(409, "SystemColumn", "`state` is the system's.", "Use -s."))
    ran = run("oarnodesetting", "-r", "33", "-p", "state=Dead")
    assert (ran.code, ran.err) == (
        golden("nset_p_system").code,
        "oarnodesetting: `state` is the system's.\n  Use -s.\n",
    )


def test_h_is_a_host_and_help_is_spelled_out(run):
    ran = run("oarnodesetting", "--help")
    assert (ran.code, ran.out.startswith("Usage: oarnodesetting -a [-h NODE]")) == (0, True)


def test_properties_are_listed_without_the_systems(run, server):
    names, system = sorted(golden("prop_l").out.split()), ["state", "resource_id"]
    listed = ok({"properties": dict.fromkeys([*names, *system], "int"), "system": system})
    server.by_path["GET /api/v1/properties"] = listed
    assert run("oarproperty", "-l").out == "".join(f"{name}\n" for name in names)
    assert '"cpu" : "int"' in run("oarproperty", "-l", "-J").out


@pytest.mark.parametrize(
    ("words", "name", "requests"),
    [
        (["-a", "gpu"], "prop_a_int", [("POST", "/properties", {"name": "gpu", "kind": "int"})]),
        (["-a", "p1", "-a", "p2"], "prop_a_two",
         [("POST", "/properties", {"name": name, "kind": "int"}) for name in ("p1", "p2")]),
        (["-q", "-a", "p3"], "prop_q", [("POST", "/properties", {"name": "p3", "kind": "int"})]),
    ],
)  # fmt: skip
def test_properties_are_added(run, server, words, name, requests):
    assert run("oarproperty", *words) == golden(name)
    assert sent(server) == requests


def test_a_property_for_texts_is_added_and_another_renamed(run, server):
    assert run("oarproperty", "-c", "-a", "model", "-r", "old, new").out == (
        "Added property: model\nRenamed property: old into new\n"
    )  # fmt: skip
    assert sent(server) == [
        ("POST", "/properties", {"name": "model", "kind": "str"}),
        ("POST", "/properties/rename", {"old": "old", "new": "new"}),
    ]


def test_properties_are_dropped(run, server):
    assert run("oarproperty", "-d", "p2", "-d", "p3", "-d", "upper") == golden("prop_d_multi")
    assert [(request.method, request.path, request.body) for request in server.requests] == [
        ("DELETE", f"/api/v1/properties/{name}", b"") for name in ("p2", "p3", "upper")
    ]


@pytest.mark.parametrize(
    ("words", "kind", "name"),
    [
        (["-a", "bad name"], "BadPropertyName", "prop_a_badname"),
        (["-d", "state"], "SystemColumn", "prop_d_system"),
        (["-d", "nosuch"], "UnknownProperty", "prop_d_unknown"),
        (["-r", "nosuch,p8"], "UnknownProperty", "prop_r_bad"),
        (["-r", "state,st"], "SystemColumn", "prop_r_system"),
    ],
)
def test_a_refused_property_has_oars_code(run, server, words, kind, name):
    server.says(refusal(409, kind, "Refused.", "Way out."))
    assert run("oarproperty", *words) == Ran(golden(name).code, "", "oarproperty: Refused.\n  Way out.\n")


@pytest.mark.parametrize("words", [[], ["-q"], ["gpu"], ["-r", "a"], ["-r", ",b"]])
def test_oarproperty_without_sense_is_refused(run, server, words):
    ran = run("oarproperty", *words)
    assert (ran.code, ran.out, server.requests) == (golden("prop_none").code, "", [])
    assert ran.err.startswith("oarproperty: ")


def test_a_dead_resource_is_removed(run, server):
    assert run("oarremoveresource", "33") == golden("rm_dead")
    assert [(request.method, request.path) for request in server.requests] == [("DELETE", "/api/v1/resources/33")]


def test_a_resource_that_is_not_dead_stays(run, server):
    server.says(refusal(409, "ResourceInUse", "Resource 3 is Alive.", "oarnodesetting -r 3 -s Dead"))
    assert run("oarremoveresource", "3", "4") == Ran(
        1, "Resource to remove : 3\n", "oarremoveresource: Resource 3 is Alive.\n  oarnodesetting -r 3 -s Dead\n"
    )
    assert len(server.requests) == 1


@pytest.mark.parametrize(("words", "name"), [([], "rm_none"), (["abc"], "rm_garbage")])
def test_a_resource_must_be_named(run, server, words, name):
    ran = run("oarremoveresource", *words)
    assert (ran.code, ran.out, server.requests) == (golden(name).code, "", [])


@pytest.mark.parametrize(
    ("words", "body", "out"),
    [
        ([], {}, "[ACCOUNTING] 3 job(s) accounted for\n"),
        (["--reinitialize"], {"reinitialize": True}, "[ACCOUNTING] 3 job(s) accounted for\n"),
        (["--delete_before", "1"], {"delete_before": 1}, "Deleting records older than 1 seconds ago...\n"),
        (["--delete-before=1"], {"delete_before": 1}, "Deleting records older than 1 seconds ago...\n"),
    ],
)
def test_jobs_are_accounted_for(run, server, words, body, out):
    server.says(ok({"jobs": 3, "rows": 8}))
    assert run("oaraccounting", *words) == Ran(0, out, "")
    assert sent(server) == [("POST", "/accounting", body)]


def test_forgetting_all_and_forgetting_some_do_not_go_together(run, server):
    assert run("oaraccounting", "--reinitialize", "--delete-before", "1").code == 1
    assert server.requests == []


QUEUES = [
    {"name": name, "priority": priority, "policy": f"oar_sched_gantt_with_{policy}", "active": True}
    for name, priority, policy in [
        ("default", 2, "timesharing_and_fairsharing_and_quotas"),
        ("admin", 10, "timesharing_and_fairsharing_and_quotas"),
        ("besteffort", 0, "timesharing_and_fairsharing_and_quotas"), ("night", 3, "timesharing"),
    ]
]  # fmt: skip


def blocks(text):
    """Split a listing of queues, which OAR prints in any order."""
    return sorted("\n" + block for block in text.replace("\n\t", "\t").splitlines())


def test_queues_are_listed(run, server):
    server.says(ok({"queues": QUEUES}))
    shown = run("oarnotify", "-l")
    assert blocks(shown.out) == blocks(golden("notify_l2").out)
    assert shown.out.startswith("admin\n\tpriority = 10\n")
    stopped = [queue | {"active": queue["name"] != "default"} for queue in QUEUES[:3]]
    server.says(ok({"queues": stopped}))
    assert blocks(run("oarnotify", "-l").out) == blocks(golden("notify_l_disabled").out)
    assert '"active" : false' in run("oarnotify", "-l", "-J").out


@pytest.mark.parametrize(
    ("words", "request_", "out"),
    [
        (["-e", "q"], ("POST", "/queues/start", {"names": ["q"]}), "Enable queue q.\n"),
        (["-d", "q"], ("POST", "/queues/stop", {"names": ["q"]}), "Disable queue q.\n"),
        (["-E"], ("POST", "/queues/start", {}), "Enable all queues.\n"),
        (["-D"], ("POST", "/queues/stop", {}), "Disable all queues.\n"),
        (["--add_queue", "night,3,fifo"],
         ("POST", "/queues", {"name": "night", "priority": 3, "policy": "fifo"}), "Add queue night.\n"),
    ],
)  # fmt: skip
def test_queues_are_managed(run, server, words, request_, out):
    assert run("oarnotify", *words) == Ran(0, out, "")
    assert sent(server) == [request_]


def test_a_queue_is_removed(run, server):
    assert run("oarnotify", "--remove_queue", "a/b") == Ran(0, "Remove queue a/b.\n", "")
    assert [(request.method, request.path) for request in server.requests] == [("DELETE", "/api/v1/queues/a%2Fb")]


def test_a_queue_that_is_not_there_is_refused(run, server):
    server.says(refusal(404, "UnknownQueue", "There is no queue `zzz`.", "`oarnotify -l` lists the queues."))
    assert run("oarnotify", "-e", "zzz") == Ran(
        1, "", "oarnotify: There is no queue `zzz`.\n  `oarnotify -l` lists the queues.\n"
    )


@pytest.mark.parametrize("words", [[], ["Term"], ["--add-queue", "night"], ["--add-queue", "night,high,fifo"]])
def test_oarnotify_without_sense_is_refused(run, server, words):
    ran = run("oarnotify", *words)
    assert (ran.code, ran.out, server.requests) == (1, "", [])
    assert ran.err.startswith("oarnotify: ")


@pytest.mark.parametrize(
    "command", ["oarnodesetting", "oarproperty", "oarremoveresource", "oaraccounting", "oarnotify"]
)
def test_a_server_that_is_down_is_told(run, command):
    words = {"oarnodesetting": ["-s", "Dead"], "oarproperty": ["-l"], "oarremoveresource": ["1"], "oarnotify": ["-l"]}
    ran = run(command, *words.get(command, []), OARLOCK_SERVER="/nowhere/server.sock")
    assert ran.code == 2
    assert "No server answers at /nowhere/server.sock" in ran.err
