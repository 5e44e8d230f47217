"""oarnodes as a process, compared with a real OAR's outputs."""

import json
import re

import pytest

from tests.canned import ok, refusal
from tests.cli.conftest import Ran, golden, plain


def everything():
    """Give the resources and the jobs on them, read from a golden output."""
    found = json.loads(golden("nodes_J_all").out)
    jobs = {number: [int(row["jobs"])] for number, row in found.items() if "jobs" in row}
    return [{name: value for name, value in row.items() if name != "jobs"} for row in found.values()], jobs


@pytest.fixture
def cluster(server):
    """A server that knows the resources of the golden outputs."""
    rows, jobs = everything()
    server.says(ok({"resources": rows, "jobs": jobs}))
    return rows, jobs


def tidied(text):
    """Sort the properties of each resource, which OAR prints in any order."""

    def sort(found):
        return "properties : " + ", ".join(sorted(found[1].split(", ")))

    return re.sub(r"properties : (.*)", sort, text)


def test_resources_are_told_with_properties_and_jobs(run, cluster):
    assert run("oarnodes").out == tidied(golden("nodes_plain").out)


def test_a_means_all(run, cluster):
    assert run("oarnodes", "-a") == run("oarnodes")


def test_programs_get_what_oar_gives_them(run, server, cluster):
    shown = run("oarnodes", "-J").out
    assert json.loads(shown) == json.loads(golden("nodes_J_all").out)
    assert (shown[-3:], golden("nodes_J_all").out[-3:]) == ("}\n\n", "}\n\n")
    rows, _ = cluster
    [three] = [row for row in rows if row["resource_id"] == 3]
    server.says(ok({"resources": [three | {"cpuset": 2, "last_job_date": 1794766942}], "jobs": {"3": [78]}}))
    for option, name in (("-Y", "nodes_Y"), ("-X", "nodes_X")):
        # `jobs` is a text, since it may be several numbers.
        assert run("oarnodes", option, "-r", "3").out.replace("'78'", "78").rstrip() == plain(golden(name).out).rstrip()


def test_states_are_told_by_node(run, server, cluster):
    rows, _ = cluster
    server.says(ok({"resources": [row for row in rows if row["network_address"] in {"node1", "node2"}], "jobs": {}}))
    assert run("oarnodes", "-s", "node1", "node2") == golden("nodes_s_node")
    assert server.requests[0].path == "/api/v1/resources?nodes=node1,node2"


def test_states_for_programs(run, cluster):
    assert run("oarnodes", "-s", "-Y") == golden("nodes_s_Y")
    assert json.loads(run("oarnodes", "-s", "-J").out) == json.loads(golden("nodes_s_J").out)


def test_a_node_that_sleeps_is_standing_by(run, server):
    row = {"resource_id": 33, "network_address": "node5", "state": "Absent", "cm_availability": 2147483647}
    server.says(ok({"resources": [row], "jobs": {}}))
    assert run("oarnodes", "-s", "node5") == golden("nset_after_absent")
    server.says(ok({"resources": [row | {"cm_availability": 0}], "jobs": {}}))
    assert run("oarnodes", "-s", "node5").out == "node5\n    33 : Absent\n"


def test_names_are_told_once(run, cluster):
    assert run("oarnodes", "-l") == golden("nodes_l")
    assert json.loads(run("oarnodes", "-l", "-J").out) == ["node1", "node2", "node3", "node4"]


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
    assert run("oarnodes", *words) == golden("nodes_node_unknown")
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
    assert run("oarnodes", *words) == golden("cs_nodes_e")
    assert [request.path for request in server.requests] == [path]


def test_a_date_that_is_none_is_refused(run):
    assert run("oarnodes", "-e", "yesterday") == Ran(
        1, "", 'oarnodes: --events: `yesterday` is no date.\n  Write it as "YYYY-MM-DD hh:mm:ss".\n'
    )


def test_a_refused_condition_is_an_error(run, server):
    server.says(refusal(400, "UnknownProperty", "There is no property `bogus`.", "Did you mean `bonus`?"))
    assert run("oarnodes", "--sql", "bogus=1") == Ran(
        1, "", "oarnodes: There is no property `bogus`.\n  Did you mean `bonus`?\n"
    )


def test_an_unknown_option_is_refused_with_oars_code(run):
    ran = run("oarnodes", "--lits")
    assert ran == Ran(
        golden("nodes_bad_option").code, "", "oarnodes: There is no option --lits.\n  Did you mean --list?\n"
    )
