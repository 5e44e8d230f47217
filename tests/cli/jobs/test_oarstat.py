"""oarstat as a process: which words ask for what, and how answers are printed."""

import json
import os
import pwd
import re
import subprocess
import sys
import time

import pytest

from oarlock.cli.layout import jobs
from oarlock.model.job import JobState
from tests.canned import ok, refusal
from tests.cli.conftest import ROOT, Ran


def view(job_id, state="Waiting", owner="alice", message="", **more):
    """A job as the server tells of it, with every field."""
    return {
        "Job_Id": job_id, "array_id": job_id, "array_index": 1, "name": None, "project": "default", "owner": owner,
        "job_user": owner, "state": state, "queue": "default", "command": "sleep 300",
        "launchingDirectory": f"/home/{owner}", "stdout_file": f"OAR.{job_id}.stdout",
        "stderr_file": f"OAR.{job_id}.stderr", "jobType": "PASSIVE",
        "properties": "(desktop_computing = 'NO') AND drain='NO'", "reservation": "None", "walltime": 600,
        "submissionTime": 1794766964, "startTime": 0, "stopTime": 0, "scheduledStart": None, "message": message,
        "initial_request": None, "wanted_resources": "", "types": [], "dependencies": [], "assigned_resources": [],
        "assigned_network_address": [], "cpuset_name": None, "resubmit_job_id": 0, "exit_code": None, "events": [],
        "checkpoint": 0, "checkpoint_signal": 12, "notify": None, **more,
    }  # fmt: skip


LONG1 = view(
    78, "Running", message="R=4,W=0:10:0,J=B,N=long1 (Karma=0.000,quota_ok)", startTime=1794766964, name="long1",
    submissionTime=1794766962, assigned_resources=[1, 2, 3, 4], assigned_network_address=["node1"],
    stdout_file="OAR.long1.78.stdout", stderr_file="OAR.long1.78.stderr", scheduledStart=1794766964,
    initial_request="oarsub -n long1 -l /nodes=1/core=4,walltime=0:10:0 sleep 300",
    wanted_resources="-l \"{type = 'default'}/network_address=1/core=4,walltime=0:10:0\" ",
)  # fmt: skip


def members():
    """Three jobs of an array."""
    message = "R=32,W=0:10:0,J=B (Karma=0.000,quota_ok)"
    wanted = "-l \"{type = 'default'}/network_address=4,walltime=0:10:0\" "
    starts = (1794767625, 1794768286, 1794768947)
    return [
        view(80 + at, owner="bob", message=message, array_id=80, array_index=1 + at, wanted_resources=wanted,
             scheduledStart=start)
        for at, start in enumerate(starts)
    ]  # fmt: skip


def test_a_job_that_ended_took_as_long_as_it_took(run, server):
    message = "R=8,W=0:1:0,J=B (Karma=0.000,quota_ok)"
    server.says(ok({"jobs": [view(1, "Terminated", message=message, startTime=1794766590, stopTime=1794766593)]}))
    assert run("oarstat", "-j", "1").out.splitlines()[2] == f"1         T alice       0:00:03 {message}"


def test_an_accepted_reservation_has_not_run_before_its_start():
    [*_, line] = jobs.job_table([view(115, message="R=8,W=0:1:0,J=R", startTime=2000)], now=1000)
    assert line == "115       W alice       0:00:00 R=8,W=0:1:0,J=R"


@pytest.mark.parametrize("state", JobState)
def test_every_state_has_its_letter(state):
    letters = {
        JobState.WAITING: "W", JobState.HOLD: "H", JobState.TO_LAUNCH: "L", JobState.TO_ERROR: "E",
        JobState.TO_ACK_RESERVATION: "W", JobState.LAUNCHING: "L", JobState.RUNNING: "R", JobState.SUSPENDED: "S",
        JobState.RESUMING: "S", JobState.FINISHING: "F", JobState.TERMINATED: "T", JobState.ERROR: "E",
    }  # fmt: skip
    assert jobs.state_letter(state) == letters[state]


def test_arrays_are_listed_with_their_places(run, server):
    server.says(ok({"jobs": members()}))
    assert run("oarstat", "--array", "80").out.splitlines()[:3] == [
        "Job id    A. id     index S User     Duration   System message",
        "--------- --------- ----- - -------- ---------- --------------------------------",
        "80        80        1     W bob         0:00:00 R=32,W=0:10:0,J=B (Karma=0.000,quota_ok)",
    ]
    assert server.requests[0].path == "/api/v1/jobs?array=80&full=1"


def test_an_array_can_be_one_line():
    [*_, other, array] = jobs.compact_table([view(22, message="R=1"), *members()], 1794767000)
    assert other == "22        W alice       0:00:00 R=1"
    assert array == "3@80      - bob         0:00:00 R=32,W=0:10:0,J=B (Karma=0.000,quota_ok)"


def test_the_older_table_has_names_and_queues():
    shown = jobs.dated_table([view(78, "Running", name="long1", submissionTime=1794766962)])
    assert shown[0] == "Job id     Name           User           Submission Date     S Queue"
    assert re.fullmatch(r"78         long1          alice          2026-11-15 ..:..:42 R default   ", shown[2])


def test_what_is_known_only_of_some_jobs_is_told_where_it_is_known(run, server):
    started = {"startTime": 1794767797, "cpuset_name": "alice_128", "scheduledStart": 1794767797, "walltime": 300}
    server.says(ok({"jobs": [view(
        128, "Suspended", message="R=1,W=0:5:0,J=B (Karma=2.932,quota_ok)", command="./cs.sh 40",
        assigned_resources=[2], assigned_network_address=["node1"], submissionTime=1794767795,
        properties="((resource_id = 2) AND desktop_computing = 'NO') AND drain='NO'",
        wanted_resources="-l \"{type = 'default'}/resource_id=1,walltime=0:5:0\" ",
        initial_request="oarsub -p resource_id = 2 -l resource_id=1,walltime=0:5:0 ./cs.sh 40",
        events=[{"id": 1, "type": "HOLD_RUNNING_JOB", "at": 1794767802, "hosts": [], "to_check": False,
                 "description": "User root launched oarhold on the job 128"}], **started)]}))  # fmt: skip
    lines = run("oarstat", "-fj", "128").out.splitlines()
    assert {"    startTime = 2026-11-15 18:36:37", "    cpuset_name = alice_128"} < set(lines)
    event = "2026-11-15 18:36:42> HOLD_RUNNING_JOB:User root launched oarhold on the job 128"
    assert lines[-3:] == ["    events = ", event, ""]


def test_the_memory_limit_of_a_job_is_told_for_each_node_where_they_differ():
    def told(limits):
        shown = jobs.job_details(view(7, memory_limits=limits))
        return [line.strip() for line in shown if "memory_limit" in line]

    assert told({}) == []
    assert told({"n1": 3 << 29}) == ["memory_limit = 1536 MiB"]
    assert told({"n1": 1 << 30, "n2": 1 << 30}) == ["memory_limit = 1024 MiB on each node"]
    assert told({"n1": 1 << 30, "n2": 2 << 30}) == ["memory_limit = 1024 MiB on n1, 2048 MiB on n2"]


def test_reserved_resources_are_told_where_the_server_tells_them():
    shown = jobs.job_details(view(115, reservation="Scheduled", reserved_resources=[25, 26]))
    assert shown[shown.index("    reservation = Scheduled") + 1] == "    reserved_resources = 25+26"


@pytest.mark.parametrize(
    ("status", "shown"), [(0, "0 (0,0,0)"), (256, "256 (1,0,0)"), (9, "9 (0,9,0)"), (139, "139 (0,11,1)")]
)
def test_an_exit_code_is_told_with_its_parts(status, shown):
    lines = jobs.job_details(view(1, "Terminated", exit_code=status))
    assert lines[lines.index("    command = sleep 300") + 1] == f"    exit_code = {shown}"


def test_a_job_without_prediction_and_with_a_hidden_command_says_so():
    lines = jobs.job_details(view(1, command=None))
    assert {"    scheduledStart = no prediction", "    command = "} < set(lines)


def test_programs_get_some_fields_and_all_with_f(run, server):
    server.says(ok({"jobs": [LONG1]}))
    brief = json.loads(run("oarstat", "-J", "-j", "78").out)["78"]
    whole = json.loads(run("oarstat", "-J", "-f", "-j", "78").out)["78"]
    assert whole == LONG1
    assert brief == {name: LONG1[name] for name in jobs.BRIEF}
    assert server.requests[0].path == "/api/v1/jobs?ids=78&full=1"


def test_only_the_state(run, server):
    server.says(ok({"jobs": [LONG1, view(1, "Terminated")]}))
    assert run("oarstat", "-s", "-j", "78", "-j", "1").out == "1: Terminated\n78: Running\n"
    assert server.requests[0].path == "/api/v1/jobs?ids=78,1"


def test_a_job_that_does_not_exist_is_an_empty_answer_and_a_hint(run, server):
    server.says(ok({"jobs": []}))
    hint = "oarstat: There is no job 99999.\n  `oarstat` lists yours.\n"
    assert run("oarstat", "-j", "99999") == Ran(0, "", hint)
    assert run("oarstat", "-u", "nobody") == Ran(0, "", "")
    assert run("oarstat", "--usage", "-j", "99999") == Ran(0, "", hint)
    server.says(refusal(404, "UnknownJob", "There is no job 99999.", "`oarstat` lists yours."))
    for option in ("-e", "-p"):
        assert run("oarstat", option, "-j", "99999") == Ran(0, "", hint)


@pytest.mark.parametrize(
    ("words", "path"),
    [
        ([], "/api/v1/jobs"),
        (["-u", "bob"], "/api/v1/jobs?user=bob"),
        (["-u", "-f"], "/api/v1/jobs?user=root&full=1"),
        (["--sql", "project = 'p1'"], "/api/v1/jobs?where=project%20%3D%20%27p1%27"),
        (["-j"], "/api/v1/jobs?ids=7"),
        (["--array"], "/api/v1/jobs?full=1"),
    ],
)
def test_what_is_asked_for_is_what_the_server_is_asked(run, server, words, path):
    server.says(ok({"jobs": []}))
    assert run("oarstat", *words, OAR_JOB_ID="7").code == 0
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert [request.path for request in server.requests] == [path.replace("root", me)]


def test_events_are_told(run, server):
    text = "[bipbip 66] Ask to change the job state"
    event = {"id": 1, "type": "SWITCH_INTO_TERMINATE_STATE", "at": 1794766921, "description": text}
    server.says(ok({"events": [event | {"hosts": [], "to_check": False}]}))
    assert run("oarstat", "-e", "-j", "66") == Ran(
        0, f"2026-11-15 18:22:01> [66] SWITCH_INTO_TERMINATE_STATE: {text}\n", ""
    )
    assert server.requests[0].path == "/api/v1/jobs/66/events"


def test_events_of_an_array_are_those_of_its_jobs(run, server):
    server.by_path["GET /api/v1/jobs?array=80&full=1"] = ok({"jobs": members()})
    server.says(ok({"events": []}))
    assert run("oarstat", "-e", "--array", "80") == Ran(0, "", "")
    assert [request.path for request in server.requests[1:]] == [f"/api/v1/jobs/{n}/events" for n in (80, 81, 82)]


def test_properties_of_a_jobs_resources_are_told(run, server):
    row = {"resource_id": 1, "state": "Alive", "next_state": "UnChanged", "cpu": 1, "host": "node1", "mem": None}
    server.says(ok({"resources": [row]}))
    assert run("oarstat", "-p", "-j", "78") == Ran(0, " cpu = '1' , host = 'node1' , mem = '' \n", "")
    assert server.requests[0].path == "/api/v1/jobs/78/resources"


def test_why_a_job_waits_is_told(run, server):
    server.says(ok({"says": "It waits for 2 nodes.", "start": 1794767344, "obstacle": "busy", "smaller": "nodes=1"}))
    assert run("oarstat", "--why", "42").out == (
        "It waits for 2 nodes.\nStart: 2026-11-15 18:29:04\nSooner: nodes=1\n"
    )  # fmt: skip
    assert server.requests[0].path == "/api/v1/jobs/42/why"
    assert json.loads(run("oarstat", "--why", "42", "-J").out)["obstacle"] == "busy"


def test_why_tells_every_term_of_a_priority(run, server):
    terms = [
        {"name": "age", "factor": 0.25, "weight": 2.0, "value": 0.5, "says": "waits 1:00:00 of 4:00:00"},
        {"name": "slowdown", "factor": 0.5, "weight": 0.1, "value": 0.05, "says": "waits 1:00:00 for 1:00:00"},
    ]
    priority = {"total": 0.55, "terms": terms}
    server.says(ok({"says": "It waits.", "start": None, "obstacle": "busy", "smaller": None, "priority": priority}))
    assert run("oarstat", "--why", "42").out == (
        "It waits.\n"
        "Priority: 0.550\n"
        "  age       0.250 × 2 = 0.500        waits 1:00:00 of 4:00:00\n"
        "  slowdown  0.500 × 0.1 = 0.050      waits 1:00:00 for 1:00:00\n"
    )


BAR = {
    "Job_Id": 42, "state": "Terminated", "owner": "alice", "queue": "default", "name": None, "project": "default",
    "types": [], "submissionTime": 1794766743, "startTime": 1794766770, "stopTime": 1794766790, "walltime": 60,
    "resources": [6], "command": "true", "jobType": "PASSIVE", "launchingDirectory": "/home", "properties": "mem = 16",
}  # fmt: skip


AWAY = {"resource_id": 9, "state": "Dead", "startTime": 1794765000, "stopTime": 1794768198}


def test_the_gantt_chart_is_data_by_number_under_the_names_of_oars_tables(run, server):
    alive = {"resource_id": 6, "network_address": "node1", "state": "Alive"}
    dead = {"resource_id": 9, "network_address": "node2", "state": "Dead"}
    states = [AWAY | {"state": "Suspected", "stopTime": 1794766000}, AWAY | {"startTime": 1794767000}]
    server.says(ok({"jobs": [BAR], "resources": [alive, dead], "states": states}))
    ran = run("oarstat", "-J", "--gantt", "2026-11-15 18:03:18, 2026-11-15 18:43:18")
    assert server.requests[0].path == "/api/v1/gantt?since=1794765798&until=1794768198"
    told = json.loads(ran.out)
    assert (told["resources"], told["dead_resources"]) == (
        {"6": alive, "9": dead},
        {"9": [[1794765000, 1794766000, "Suspected"], [1794767000, 1794768198, "Dead"]]},
    )
    assert told["jobs"] == {
        "42": {
            "job_id": 42, "state": "Terminated", "user": "alice", "queue_name": "default", "job_name": None,
            "project": "default", "types": [], "submission_time": 1794766743, "start_time": 1794766770,
            "stop_time": 1794766790, "walltime": 60, "resource_id": [6], "network_address": ["node1"],
            "command": "true", "job_type": "PASSIVE", "launching_directory": "/home", "properties": "mem = 16",
        }
    }  # fmt: skip


def test_the_gantt_chart_for_people_is_by_start_and_names_what_is_away(run, server):
    later = BAR | {"Job_Id": 7, "startTime": 1794766780, "stopTime": 0, "resources": [1, 2]}
    resource = {"resource_id": 9, "network_address": "node2", "state": "Dead"}
    states = [AWAY, AWAY | {"resource_id": 10}, AWAY | {"resource_id": 99, "stopTime": 1794766000}]
    server.says(ok({"jobs": [later, BAR], "resources": [resource, resource | {"resource_id": 10}], "states": states}))
    assert run("oarstat", "-g", "2026-11-15, 2026-11-16").out == (
        "Job id    S User     Start               End                 Resources\n"
        "--------- - -------- ------------------- ------------------- --------------------\n"
        "42        T alice    2026-11-15 18:19:30 2026-11-15 18:19:50 6\n"
        "7         T alice    2026-11-15 18:19:40 -                   1,2\n"
        "Node             State     Start               End                 Resources\n"
        "---------------- --------- ------------------- ------------------- --------------------\n"
        "node2            Dead      2026-11-15 17:50:00 2026-11-15 18:43:18 9,10\n"
        "-                Dead      2026-11-15 17:50:00 2026-11-15 18:06:40 99\n"
    )


ROWS = [
    {"window_start": 1794700800, "window_stop": 1794787199, "user": "alice", "project": project, "queue": "default",
     "type": kind, "consumption": consumption}
    for project, kind, consumption in [
        ("pp", "USED", 6), ("pp", "ASKED", 540), ("x", "USED", 30), ("x", "ASKED", 120), ("y", "USED", 35),
        ("y", "ASKED", 1260), ("z", "USED", 19), ("z", "ASKED", 60), ("w", "USED", 1525), ("w", "ASKED", 204383),
    ]
]  # fmt: skip


def test_consumption_is_summed_by_user(run, server):
    server.says(ok({"rows": ROWS, "karma": {}}))
    ran = run("oarstat", "--accounting", "2026-01-01, 2027-12-31")
    assert server.requests[0].path == "/api/v1/accounting?since=1767225600&until=1830297599"
    heads = (
        "    User       First window starts  Last window ends     Asked (seconds)  Used (seconds)\n"
        "    ---------- -------------------- -------------------- ---------------- ----------------\n"
    )
    assert ran.out == f"{heads}alice      2026-11-15 00:00:00  2026-11-15 23:59:59            206363             1615\n"
    assert json.loads(run("oarstat", "-J", "--accounting", "2026-01-01, 2027-12-31").out) == {
        "alice": {"asked": 206363, "used": 1615, "begin": 1794700800, "end": 1794787199}
    }


def test_consumption_of_nobody_is_a_head(run, server):
    server.says(ok({"rows": [], "karma": {}}))
    assert len(run("oarstat", "--accounting", "2026-01-01, 2027-12-31").out.splitlines()) == 2


def test_consumption_of_a_user_is_summed_by_project_with_its_karma(run, server):
    server.says(ok({"rows": ROWS[:4], "karma": {"pp": 2.5, "x": 0.25}}))
    ran = run("oarstat", "-u", "alice", "--accounting", "2026-01-01, 2027-12-31")
    assert ran.out.splitlines() == [
        "User alice",
        "    First window starts : 2026-11-15 00:00:00",
        "    Last window ends    : 2026-11-15 23:59:59",
        "    Asked (seconds)     : 660 (0:11:00)",
        "    Used (seconds)      : 36 (0:00:36)",
        "Project pp",
        "    Asked (seconds)     : 540 (0:09:00)",
        "    Used (seconds)      : 6 (0:00:06)",
        "    Karma               : 2.500",
        "Project x",
        "    Asked (seconds)     : 120 (0:02:00)",
        "    Used (seconds)      : 30 (0:00:30)",
        "    Karma               : 0.250",
    ]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--nosuch"], 1, "There is no option --nosuch.\n"),
        (["-g", "garbage"], 1, "--gantt takes two dates, not `garbage`.\n"),
        (["--accounting", "garbage"], 1, "--accounting takes two dates, not `garbage`.\n"),
        (["-j", "abc"], 255, "`abc` is not a job number.\n"),
        (["-j"], 255, "No job is named, neither here nor by $OAR_JOB_ID.\n"),
    ],
)
def test_what_cannot_be_meant_is_refused(run, server, words, code, told):
    ran = run("oarstat", *words)
    assert (ran.code, ran.out, ran.err[: len(told) + 9]) == (code, "", f"oarstat: {told}")
    assert server.requests == []


def test_a_format_that_is_not_there_is_refused(run, server):
    assert run("oarstat", "--format", "9") == Ran(
        1, "", "oarstat: There is no format 9.\n  Write --format=1 or --format=2.\n"
    )
    assert server.requests == []


def test_a_bare_number_is_answered_with_the_option_it_needs(run):
    assert run("oarstat", "78").err == "oarstat: `78` is not an option.\n  oarstat -j 78\n"


def test_a_refusal_of_the_server_is_told(run, server):
    server.says(refusal(404, "UnknownJob", "There is no job 9.", "`oarstat` lists yours."))
    ran = run("oarstat", "--why", "9")
    assert (ran.code, ran.out, ran.err) == (1, "", "oarstat: There is no job 9.\n  `oarstat` lists yours.\n")


def test_a_server_that_is_down_is_told(run):
    assert run("oarstat", OARLOCK_SERVER="/nowhere/server.sock").code == 2


def test_a_list_that_nobody_reads_to_its_end_is_no_error_to_tell_of(server):
    server.says(ok({"jobs": [view(n, message="x" * 100) for n in range(5000)]}))
    code = "import sys; from oarlock.cli.jobs.oarstat import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OARLOCK_SERVER": server.address},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        process.stdout.read(10)
        process.stdout.close()
        assert (process.stderr.read(), process.wait(60)) == (b"", 141)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_long_list_reaches_a_slow_reader_whole(server, run, unbuffered):
    server.says(ok({"jobs": [view(n, "Terminated", message="x" * 100) for n in range(1, 3000)]}))
    assert len(run("oarstat", PYTHONUNBUFFERED=unbuffered).out.splitlines()) == 3001


def test_a_terminal_that_knows_few_letters_gets_the_others_described(run, server):
    server.says(ok({"jobs": [view(1, "Terminated", message="Zoë …")]}))
    [*_, line] = run("oarstat", PYTHONIOENCODING="ascii:strict").out.splitlines()
    assert line == "1         T alice       0:00:00 Zo\\xeb \\u2026"


def test_job_names_do_not_reach_the_terminal_as_control_sequences(run, server):
    server.says(ok({"jobs": [view(1, "Terminated", message="\x1b[2Jgone\n2 W root", startTime=1, stopTime=2)]}))
    [*_, line] = run("oarstat").out.splitlines()
    assert line == "1         T alice       0:00:01 \\x1b[2Jgone\\n2 W root"


def test_the_duration_of_a_running_job_goes_on(run, server):
    server.says(ok({"jobs": [view(1, "Running", startTime=int(time.time()) - 3600)]}))
    assert " 1:00:0" in run("oarstat").out
