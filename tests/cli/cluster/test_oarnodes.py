"""oarnodes as a process, which words ask for what, and how answers are printed."""

import json

import pytest

from tests.canned import ok, refusal
from tests.cli.conftest import Ran

ROWS = [
    {"resource_id": number, "network_address": node, "state": "Alive", "cpuset": 0, "core": number}
    for number, node in ((1, "node1"), (9, "node2"), (10, "node2"))
]


def test_a_means_all(run, server):
    server.says(ok({"resources": ROWS, "jobs": {"1": [78]}}))
    assert run("oarnodes", "-a") == run("oarnodes")


def test_resources_come_in_the_order_of_words(run, server):
    server.says(ok({"resources": ROWS, "jobs": {}}))
    assert run("oarnodes", "-s", "node1", "node2").out == (
        "node1\n    1 : Alive\nnode2\n    10 : Alive\n    9 : Alive\n"
    )
    assert server.requests[0].path == "/api/v1/resources?nodes=node1,node2"


def test_a_node_that_sleeps_is_standing_by(run, server):
    row = {"resource_id": 33, "network_address": "node5", "state": "Absent", "cm_availability": 2147483647}
    server.says(ok({"resources": [row], "jobs": {}}))
    assert run("oarnodes", "-s", "node5") == Ran(0, "node5\n    33 : Absent (standby)\n", "")
    server.says(ok({"resources": [row | {"cm_availability": 0}], "jobs": {}}))
    assert run("oarnodes", "-s", "node5").out == "node5\n    33 : Absent\n"


def test_names_are_told_once(run, server):
    server.says(ok({"resources": ROWS, "jobs": {}}))
    assert run("oarnodes", "-l").out == "node1\nnode2\n"
    assert json.loads(run("oarnodes", "-l", "-J").out) == ["node1", "node2"]


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["-r", "3", "-r", "4"], "/api/v1/resources?ids=3,4"),
        (["--sql", "state = 'Dead'"], "/api/v1/resources?where=state%20%3D%20%27Dead%27"),
        (["nosuch"], "/api/v1/resources?nodes=nosuch"),
    ],
)
def test_what_is_asked_for_is_what_the_server_is_asked(run, server, words, path):
    server.says(ok({"resources": [], "jobs": {}}))
    assert run("oarnodes", *words) == Ran(0, "", "")
    assert [request.path for request in server.requests] == [path]


def test_several_jobs_on_one_resource_are_all_told(run, server):
    row = {"resource_id": 1, "network_address": "node1", "state": "Alive", "core": None, "type": "default"}
    server.says(ok({"resources": [row], "jobs": {"1": [7, 8]}}))
    assert run("oarnodes").out == (
        "network_address : node1\nresource_id : 1\nstate : Alive\njobs: 7, 8\n"
        "properties : core=, jobs=7, 8, network_address=node1, type=default\n\n"
    )


@pytest.mark.parametrize(
    ("words", "path"),
    [
        (["-e"], "/api/v1/events?limit=20"),
        (["-e", "--", "node4"], "/api/v1/events?nodes=node4&limit=20"),
        (["-e", "2026-11-15 18:00:00", "node4"], "/api/v1/events?nodes=node4&since=1794765600"),
    ],
)
def test_events_of_nodes_are_told(run, server, words, path):
    text = "[bipbip] OAR suspects nodes for the job 129 : node1"
    event = {"id": 1, "job_id": 129, "type": "CPUSET_ERROR", "at": 1794767820, "description": text}
    server.says(ok({"events": [event]}))
    assert run("oarnodes", *words) == Ran(0, f"2026-11-15 18:37:00| 129| CPUSET_ERROR: {text}\n", "")
    assert [request.path for request in server.requests] == [path]


def test_a_date_that_is_none_is_refused(run):
    assert run("oarnodes", "-e", "yesterday") == Ran(
        1, "", 'oarnodes: --events: `yesterday` is not a date.\n  Write it as "YYYY-MM-DD hh:mm:ss".\n'
    )


def test_a_refused_condition_is_an_error(run, server):
    server.says(refusal(400, "UnknownProperty", "There is no property `bogus`.", "Did you mean `bonus`?"))
    assert run("oarnodes", "--sql", "bogus=1") == Ran(
        1, "", "oarnodes: There is no property `bogus`.\n  Did you mean `bonus`?\n"
    )


def test_an_unknown_option_is_refused_with_oars_code(run):
    ran = run("oarnodes", "--lits")
    assert ran == Ran(1, "", "oarnodes: There is no option --lits.\n  Did you mean --list?\n")


def test_the_summary_folds_nodes_that_fare_alike_and_adds_up_states(run, server):
    rows = [
        {"resource_id": 2 * node + core, "network_address": f"node{node}", "state": "Alive"}
        for node in range(1, 501)
        for core in range(2)
    ]
    rows[-1]["state"] = rows[-3]["state"] = rows[-4]["state"] = "Suspected"
    rows.append({"resource_id": 2000, "network_address": "", "state": "Alive"})
    jobs = {"2": [7], "3": [7], "4": [7], "2000": [8]}
    server.says(ok({"resources": rows, "jobs": jobs}))
    assert run("oarnodes", "--summary") == Ran(
        0,
        "Nodes       Count State               Resources In use Jobs\n"
        "----------- ----- ------------------- --------- ------ -----\n"
        "(no node)       1 Alive                       1      1     1\n"
        "node1           1 Alive                       2      2     1\n"
        "node2           1 Alive                       2      1     1\n"
        "node[3-498]   496 Alive                       2      0     0\n"
        "node499         1 Suspected                   2      0     0\n"
        "node500         1 Alive:1 Suspected:1         2      0     0\n"
        "\n"
        "State     Nodes Resources In use\n"
        "--------- ----- --------- ------\n"
        "Alive       499       998      4\n"
        "Suspected     2         3      0\n",
        "",
    )
    told = json.loads(run("oarnodes", "--summary", "-J").out)
    assert told["nodes"]["node2"] == {"states": {"Alive": 2}, "resources": 2, "used": 1, "jobs": [7]}
    assert told["totals"]["Suspected"] == {"nodes": 2, "resources": 3, "used": 0}


def test_the_summary_of_nothing_is_empty(run, server):
    server.says(ok({"resources": [], "jobs": {}}))
    assert run("oarnodes", "--summary") == Ran(0, "", "")
