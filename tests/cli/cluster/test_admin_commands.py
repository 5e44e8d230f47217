"""oarnodesetting, oarproperty, oarremoveresource, oaraccounting and oarnotify as processes."""

import os

import pytest

from tests.canned import ok, refusal
from tests.cli.conftest import Ran

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
    ran = run("oarnodesetting", "-a", "-h", "node5", "-p", "host=node5", "-p", "cpu=9", "-p", "core=33")
    assert ran.out.splitlines()[:2] == [
        "New resource added:  node5", "Set property host to 'node5'... 1 resource(s) updated."
    ]  # fmt: skip
    properties = {"host": "node5", "cpu": 9, "core": 33}
    assert sent(server) == [("POST", "/resources", {"host": "node5", "properties": properties})]


def test_a_resource_is_added_in_a_state(run, server):
    server.says(ok({"resource_ids": [34]}))
    assert run("oarnodesetting", "-a", "-h", "node6", "-s", "Dead", "-p", "cpu=10").code == 0
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
    server.says(ok({"resource_ids": [33, 34], "updated": {"mem": 1}}))
    assert run("oarnodesetting", *words, "-p", "mem=256").out == "Set property mem to '256'... 1 resource(s) updated.\n"
    assert sent(server) == [("POST", "/resources/properties", {"properties": {"mem": 256}} | chosen)]


def test_a_value_may_hold_an_equals_sign(run, server):
    server.says(ok({"resource_ids": [1], "updated": {"note": 1}}))
    run("oarnodesetting", "-r", "1", "-p", "note = a=b ")
    assert sent(server)[0][2]["properties"] == {"note": "a=b"}


def test_values_have_the_kind_of_their_property(run, server):
    server.says(ok({"resource_ids": [1], "updated": dict.fromkeys(("note", "cpu", "core", "mem", "bogus"), 1)}))
    words = ["note=12", "cpu=-3", "core=many", "mem=", "bogus=7"]
    ran = run("oarnodesetting", "-r", "1", *(word for text in words for word in ("-p", text)))
    assert sent(server)[0][2]["properties"] == {"note": "12", "cpu": -3, "core": "many", "mem": None, "bogus": "7"}
    assert "Set property mem to ''... 1 resource(s) updated.\n" in ran.out


def test_a_node_goes_away_at_once_where_no_job_runs(run, server):
    server.says(ok({"resource_ids": [33], "jobs": []}))
    assert run("oarnodesetting", "-h", "node5", "-s", "Absent") == Ran(
        0, "node5 --> Absent\nCheck jobs to delete on node node5:\nCheck done\n", ""
    )
    assert sent(server) == [("POST", "/resources/state", {"state": "Absent", "now": False, "nodes": ["node5"]})]


@pytest.mark.manual(75)
def test_a_node_that_goes_away_is_waited_for(run, server):
    server.says(
        ok({"resource_ids": [25], "jobs": [123]}),
        ok({"jobs": [{"Job_Id": 123, "stopTime": 0}]}),
        ok({"jobs": [{"Job_Id": 123, "stopTime": 1794766593}]}),
    )
    assert run("oarnodesetting", "-h", "node4", "-s", "Absent").out == (
        "node4 --> Absent\nCheck jobs to delete on node node4:\n\t123 .... Deleted\nCheck done\n"
    )
    assert [request.path for request in server.requests[1:]] == ["/api/v1/jobs?ids=123"] * 2


@pytest.mark.manual(75)
def test_n_does_not_wait(run, server):
    server.says(ok({"resource_ids": [25], "jobs": [123]}))
    assert run("oarnodesetting", "-n", "-r", "25", "-s", "Dead") == Ran(0, "25 --> Dead\n", "")
    assert sent(server) == [("POST", "/resources/state", {"state": "Dead", "now": True, "ids": [25]})]


def test_maintenance_is_a_state_and_a_property_of_the_same_resources(run, server):
    server.says(ok({"resource_ids": [25, 26], "jobs": [], "updated": {"cm_availability": 2}}))
    ran = run("oarnodesetting", "--sql", "state='Alive'", "-m", "on")
    assert ran.code == 0
    assert sent(server) == [
        ("POST", "/resources/state", {"state": "Absent", "now": False, "where": "state='Alive'"}),
        ("POST", "/resources/properties", {"properties": {"cm_availability": 0}, "ids": [25, 26]}),
    ]
    server.requests.clear()
    run("oarnodesetting", "-r", "25", "-m", "off")
    restored = {"state": "Alive", "now": False, "end_maintenance": True, "ids": [25]}
    assert sent(server) == [("POST", "/resources/state", restored)]


def test_a_queue_is_removed_by_force_when_that_is_said(run, server):
    server.says(ok({}))
    run("oarnotify", "--remove-queue", "default", "--force")
    assert [(one.method, one.path) for one in server.requests] == [("DELETE", "/api/v1/queues/default?force=true")]


def test_help_says_that_taking_a_node_away_ends_its_jobs(run):
    told = " ".join(run("oarnodesetting", "--help").out.split())
    assert ("wait for its jobs" in told, "the last two end the jobs there" in told) == (False, True)


def test_draining_is_a_property(run, server):
    server.says(ok({"resource_ids": [25], "updated": {"drain": 1}}))
    assert run("oarnodesetting", "-h", "n", "-d", "on").out == "Set property drain to 'YES'... 1 resource(s) updated.\n"


def test_the_highest_value_of_a_property_is_told(run, server):
    server.says(ok({"resources": [{"core": 9}, {"core": 33}, {"core": None}], "jobs": {}}))
    assert run("oarnodesetting", "--last-property-value", "core") == Ran(0, "33\n", "")
    server.says(ok({"resources": [{"cpuset": "9"}, {"cpuset": "10,42"}, {"cpuset": ""}], "jobs": {}}))
    assert run("oarnodesetting", "--last-property-value", "cpuset") == Ran(0, "10,42\n", "")


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        ([], 1, "Nothing is asked for.\n  Give -a, -s, -m, -d or -p.\n"),
        (["node5"], 1, "`node5` is not an option.\n  -h node5 names a node.\n"),
        (["-a", "-s", "Suspected"], 1,
         "`Suspected` is not a state to ask for.\n  Ask for Alive, Absent, Dead.\n"),
        (["-r", "33", "-p", "foo"], 10, "`foo` is not a property.\n  Write it as NAME=VALUE.\n"),
        (["-m", "maybe"], 1, "--maintenance is on or off, not `maybe`.\n  Write --maintenance=on.\n"),
        (["-m", "on", "-s", "Dead"], 1, "-m and -s cannot be given together.\n  -m sets the state itself.\n"),
        (["-h", "a", "-r", "1", "-s", "Dead"], 1,
         "-h, -r and --sql cannot be given together.\n  Choose one of them.\n"),
        (["-a", "-r", "1"], 1, "-a adds a resource; -r and --sql choose some.\n  Leave out one of them.\n"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_meant_is_refused(run, server, words, code, told):
    assert run("oarnodesetting", *words) == Ran(code, "", f"oarnodesetting: {told}")
    assert server.requests == []


def test_a_condition_that_fits_nothing_is_told(run, server):
    server.says(ok({"resource_ids": [], "jobs": []}))
    expected = Ran(
        12, "",
        "oarnodesetting: No resource fits `host='zzz'`.\n  `oarnodes --sql` tries a condition.\n",
    )  # fmt: skip
    assert run("oarnodesetting", "--sql", "host='zzz'", "-p", "mem=256") == expected
    assert run("oarnodesetting", "--sql", "host='zzz'", "-s", "Dead") == expected


def test_a_column_of_the_system_is_refused_with_oars_code(run, server):
    server.says(refusal(409, "SystemColumn", "`state` is the system's.", "Use -s."))
    ran = run("oarnodesetting", "-r", "33", "-p", "state=Dead")
    assert (ran.code, ran.err) == (
        8,
        "oarnodesetting: `state` is the system's.\n  Use -s.\n",
    )


def test_h_is_a_host_and_help_is_spelled_out(run):
    ran = run("oarnodesetting", "--help")
    assert (ran.code, ran.out.startswith("Usage: oarnodesetting -a [-h NODE]")) == (0, True)


def test_properties_are_listed_without_the_systems(run, server):
    names, system = ["core", "cpu", "mem"], ["state", "resource_id"]
    listed = ok({"properties": dict.fromkeys([*names, *system], "int"), "system": system})
    server.by_path["GET /api/v1/properties"] = listed
    assert run("oarproperty", "-l").out == "".join(f"{name}\n" for name in names)
    assert '"cpu" : "int"' in run("oarproperty", "-l", "-J").out


@pytest.mark.parametrize(
    ("words", "out", "requests"),
    [
        (["-a", "gpu"], "Added property: gpu\n", [("POST", "/properties", {"name": "gpu", "kind": "int"})]),
        (["-a", "p1", "-a", "p2"], "Added property: p1\nAdded property: p2\n",
         [("POST", "/properties", {"name": name, "kind": "int"}) for name in ("p1", "p2")]),
        (["-q", "-a", "p3"], "", [("POST", "/properties", {"name": "p3", "kind": "int"})]),
    ],
)  # fmt: skip
def test_properties_are_added(run, server, words, out, requests):
    server.says(ok({"added": True}))
    assert run("oarproperty", *words) == Ran(0, out, "")
    assert sent(server) == requests


def test_a_property_for_texts_is_added_and_another_renamed(run, server):
    server.says(ok({"added": True}))
    assert run("oarproperty", "-c", "-a", "model", "-r", "old, new").out == (
        "Added property: model\nRenamed property: old into new\n"
    )  # fmt: skip
    assert sent(server) == [
        ("POST", "/properties", {"name": "model", "kind": "str"}),
        ("POST", "/properties/rename", {"old": "old", "new": "new"}),
    ]


def test_properties_are_dropped(run, server):
    assert run("oarproperty", "-d", "p2", "-d", "p3", "-d", "upper") == Ran(
        0, "Removed property: p2\nRemoved property: p3\nRemoved property: upper\n", ""
    )
    assert [(request.method, request.path, request.body) for request in server.requests] == [
        ("DELETE", f"/api/v1/properties/{name}", b"") for name in ("p2", "p3", "upper")
    ]


@pytest.mark.parametrize(
    ("words", "kind", "code"),
    [
        (["-a", "bad name"], "BadPropertyName", 255),
        (["-d", "state"], "SystemColumn", 1),
        (["-d", "nosuch"], "UnknownProperty", 255),
        (["-r", "nosuch,p8"], "UnknownProperty", 255),
        (["-r", "state,st"], "SystemColumn", 1),
    ],
)
def test_a_refused_property_has_oars_code(run, server, words, kind, code):
    server.says(refusal(409, kind, "Refused.", "Way out."))
    assert run("oarproperty", *words) == Ran(code, "", "oarproperty: Refused.\n  Way out.\n")


@pytest.mark.parametrize("words", [[], ["-q"], ["gpu"], ["-r", "a"], ["-r", ",b"]])
def test_oarproperty_without_sense_is_refused(run, server, words):
    ran = run("oarproperty", *words)
    assert (ran.code, ran.out, server.requests) == (1, "", [])
    assert ran.err.startswith("oarproperty: ")


def test_a_dead_resource_is_removed(run, server):
    assert run("oarremoveresource", "33") == Ran(0, "Resource to remove : 33\nResource 33 removed.\n", "")
    assert [(request.method, request.path) for request in server.requests] == [("DELETE", "/api/v1/resources/33")]


def test_a_resource_that_is_not_dead_stays(run, server):
    server.says(refusal(409, "ResourceInUse", "Resource 3 is Alive.", "oarnodesetting -r 3 -s Dead"))
    assert run("oarremoveresource", "3", "4") == Ran(
        2, "Resource to remove : 3\n", "oarremoveresource: Resource 3 is Alive.\n  oarnodesetting -r 3 -s Dead\n"
    )
    assert len(server.requests) == 1


@pytest.mark.parametrize("words", [[], ["abc"]])
def test_a_resource_must_be_named(run, server, words):
    ran = run("oarremoveresource", *words)
    assert (ran.code, ran.out, server.requests) == (1, "", [])


BOOKINGS = [
    {"job_id": 59, "created": True, "window_start": 1794700800, "window_stop": 1794787199, "user": "alice",
     "project": "pp", "queue": "default", "type": "USED", "consumption": 21},
    {"job_id": 59, "created": False, "window_start": 1794700800, "window_stop": 1794787199, "user": "alice",
     "project": "pp", "queue": "default", "type": "ASKED", "consumption": 60},
]  # fmt: skip
BOOKED = (
    "[ACCOUNTING] Treate job 59\n"
    "[ACCOUNTING] Create new window 1794700800 --> 1794787199 , project pp, user alice, queue default, "
    "type USED with conso = 21 s\n"
    "[ACCOUNTING] Update the existing window 1794700800 --> 1794787199 , project pp, user alice, queue default, "
    "type ASKED with conso = 60 s\n"
)


@pytest.mark.parametrize(
    ("words", "body", "out"),
    [
        ([], {}, BOOKED),
        (["--reinitialize"], {"reinitialize": True}, BOOKED),
        (["--delete_before", "1"], {"delete_before": 1}, "Deleting records older than 1 seconds ago...\n"),
        (["--delete-before=1"], {"delete_before": 1}, "Deleting records older than 1 seconds ago...\n"),
    ],
)
def test_jobs_are_accounted_for(run, server, words, body, out):
    server.says(ok({"jobs": 3, "rows": 8, "bookings": BOOKINGS}))
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
    assert len(blocks(shown.out)) == 4
    assert shown.out.startswith("admin\n\tpriority = 10\n")
    stopped = [queue | {"active": queue["name"] != "default"} for queue in QUEUES[:3]]
    server.says(ok({"queues": stopped}))
    assert "default\n\tpriority = 2\n" in run("oarnotify", "-l").out
    assert run("oarnotify", "-l").out.count("\tstate = notActive\n") == 1
    assert '"active" : false' in run("oarnotify", "-l", "-J").out


@pytest.mark.manual(82)
@pytest.mark.parametrize(
    ("words", "request_", "out"),
    [
        (["-e", "q"], ("POST", "/queues/start", {"names": ["q"]}), "Enable queue q.\n"),
        (["-d", "q"], ("POST", "/queues/stop", {"names": ["q"]}), "Disable queue q.\n"),
        (["-E"], ("POST", "/queues/start", {}), "Enable all queues.\n"),
        (["-D"], ("POST", "/queues/stop", {}), "Disable all queues.\n"),
        (["--add-queue", "night"], ("POST", "/queues", {"name": "night"}), "Add queue night.\n"),
        (["--add-queue", "night,3"], ("POST", "/queues", {"name": "night", "priority": 3}), "Add queue night.\n"),
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


@pytest.mark.manual(81)
@pytest.mark.parametrize(("words", "tags"), [((), ["Term"]), (("Scheduling", "Finaud"), ["Scheduling", "Finaud"])])
def test_oarnotify_sends_tags_and_term_without_any(run, server, words, tags):
    server.says(ok({}), ok({}))
    assert run("oarnotify", *words) == Ran(0, "", "")
    assert sent(server) == [("POST", "/notify", {"tag": tag}) for tag in tags]


def test_a_queue_is_changed_with_all_that_it_is(run, server):
    server.says(ok({}))
    assert run("oarnotify", "--change-queue", "night,5,fifo").out == "Change queue night.\n"
    assert sent(server) == [("POST", "/queues/change", {"name": "night", "priority": 5, "policy": "fifo"})]
    assert run("oarnotify", "--change-queue", "night,5").err.startswith("oarnotify: `night,5` does not say everything.")


@pytest.mark.parametrize("words", [["--add-queue", "night,"], ["--add-queue", "night,high,fifo"]])
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
