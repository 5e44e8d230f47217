"""oarstat as a process: which words ask for what, and how answers are printed; compared with a real OAR's outputs."""

import json
import os
import pwd
import re
import subprocess
import sys
import time

import pytest

from oarlock.cli import details, listing
from oarlock.model.job import JobState
from tests.canned import ok, refusal
from tests.cli.conftest import ROOT, Ran, golden, plain


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
OURS = {"checkpoint", "checkpoint_signal", "notify"}
"""Fields that OAR does not print."""


def members():
    """Jobs 80 to 82 of the golden outputs."""
    message = "R=32,W=0:10:0,J=B (Karma=0.000,quota_ok)"
    wanted = "-l \"{type = 'default'}/network_address=4,walltime=0:10:0\" "
    starts = (1794767625, 1794768286, 1794768947)
    return [
        view(80 + at, owner="bob", message=message, array_id=80, array_index=1 + at, wanted_resources=wanted,
             scheduledStart=start)
        for at, start in enumerate(starts)
    ]  # fmt: skip


def table_of(name, now):
    """Read a golden table back into jobs, so that printing them must give it again."""
    jobs = []
    for line in golden(name).out.splitlines()[2:]:
        found = re.fullmatch(r"(\d+) +(\w) (\w+) +(\d+):(\d+):(\d+) (.*)", line)
        number, letter, user, hours, minutes, seconds, message = found.groups()
        [state] = {"W": ["Waiting"], "R": ["Running"], "H": ["Hold"], "T": ["Terminated"]}[letter]
        ran = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
        jobs.append(view(int(number), state, user, message, startTime=now - ran if ran else 0))
    return jobs


@pytest.mark.parametrize("name", ["stat_plain", "stat_u_bob", "stat_u_me", "resa_stat", "un_stat", "cs_stat_resumed"])
def test_the_table_is_the_one_of_oar(name):
    now = 1794767000
    assert "\n".join([*listing.table(table_of(name, now), now), ""]) == golden(name).out


def test_a_job_that_ended_took_as_long_as_it_took(run, server):
    message = "R=8,W=0:1:0,J=B (Karma=0.000,quota_ok)"
    server.says(ok({"jobs": [view(1, "Terminated", message=message, startTime=1794766590, stopTime=1794766593)]}))
    assert run("oarstat", "-j", "1") == golden("stat_j_terminated")


def test_an_accepted_reservation_has_not_run_before_its_start():
    [*_, line] = listing.table([view(115, message="R=8,W=0:1:0,J=R", startTime=2000)], now=1000)
    assert line == "115       W alice       0:00:00 R=8,W=0:1:0,J=R"


@pytest.mark.parametrize("state", JobState)
def test_every_state_has_its_letter(state):
    letters = {
        JobState.WAITING: "W", JobState.HOLD: "H", JobState.TO_LAUNCH: "L", JobState.TO_ERROR: "E",
        JobState.TO_ACK_RESERVATION: "W", JobState.LAUNCHING: "L", JobState.RUNNING: "R", JobState.SUSPENDED: "S",
        JobState.RESUMING: "S", JobState.FINISHING: "F", JobState.TERMINATED: "T", JobState.ERROR: "E",
    }  # fmt: skip
    assert listing.letter(state) == letters[state]


def test_arrays_are_listed_with_their_places(run, server):
    server.says(ok({"jobs": members()}))
    assert run("oarstat", "--array", "80") == golden("stat_array")
    assert server.requests[0].path == "/api/v1/jobs?array=80&full=1"


def test_an_array_can_be_one_line():
    others = table_of("stat_plain", 1794767000)[:3]
    expected = golden("stat_compact").out.splitlines()
    assert listing.compact([*others, *members()], 1794767000) == [*expected[:5], expected[-1]]


def test_the_older_table_has_names_and_queues():
    shown = listing.dated([view(78, "Running", name="long1", submissionTime=1794766962)])
    assert shown[:2] == golden("stat_format3").out.splitlines()[:2]
    assert re.fullmatch(r"78         long1          alice          2026-11-15 ..:..:42 R default   ", shown[2])


def test_everything_about_jobs_is_told_as_oar_does(run, server):
    server.says(ok({"jobs": members()}))
    assert run("oarstat", "-f", "--array", "80") == golden("stat_array_f")


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
    assert run("oarstat", "-fj", "128") == golden("cs_stat_susp_f")


def test_reserved_resources_are_told_where_the_server_tells_them():
    shown = details.details(view(115, reservation="Scheduled", reserved_resources=[25, 26]))
    assert shown[shown.index("    reservation = Scheduled") + 1] == "    reserved_resources = 25+26"


@pytest.mark.parametrize(
    ("status", "shown"), [(0, "0 (0,0,0)"), (256, "256 (1,0,0)"), (9, "9 (0,9,0)"), (139, "139 (0,11,1)")]
)
def test_an_exit_code_is_told_with_its_parts(status, shown):
    lines = details.details(view(1, "Terminated", exit_code=status))
    assert lines[lines.index("    command = sleep 300") + 1] == f"    exit_code = {shown}"


def test_a_job_without_prediction_and_with_a_hidden_command_says_so():
    lines = details.details(view(1, command=None))
    assert {"    scheduledStart = no prediction", "    command = "} < set(lines)


@pytest.mark.parametrize(("option", "name"), [("-Y", "stat_Y"), ("-X", "stat_X")])
def test_programs_get_what_oar_gives_them(run, server, option, name):
    server.says(ok({"jobs": [LONG1]}))
    assert run("oarstat", option, "-j", "78").out == plain(golden(name).out)
    assert server.requests[0].path == "/api/v1/jobs?ids=78&full=1"


def test_json_has_everything_with_f(run, server):
    server.says(ok({"jobs": [{name: value for name, value in LONG1.items() if name not in OURS}]}))
    ran, expected = run("oarstat", "-J", "-f", "-j", "78"), golden("stat_J_f")
    assert json.loads(ran.out) == json.loads(expected.out)
    assert sorted(ran.out.replace(",\n", "\n").splitlines()) == sorted(expected.out.replace(",\n", "\n").splitlines())


def test_perl_gets_the_same(run, server):
    server.says(ok({"jobs": [LONG1]}))
    ran, expected = run("oarstat", "-D", "-j", "78"), golden("stat_D")
    assert sorted(ran.out.replace(",\n", "\n").splitlines()) == sorted(expected.out.replace(",\n", "\n").splitlines())


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], "stat_j_s"), (["-D"], "stat_s_dumper"), (["-J"], "stat_s_json"), (["-Y"], "stat_s_yaml"),
        (["-X"], "stat_s_xml"),
    ],
)  # fmt: skip
def test_only_the_state(run, server, words, name):
    server.says(ok({"jobs": [LONG1]}))
    assert run("oarstat", "-s", *words, "-j", "78").out == plain(golden(name).out)


def test_states_come_by_number(run, server):
    server.says(ok({"jobs": [LONG1, view(1, "Terminated")]}))
    assert run("oarstat", "-s", "-j", "78", "-j", "1") == golden("stat_s_two")
    assert server.requests[0].path == "/api/v1/jobs?ids=78,1"


@pytest.mark.parametrize("name", ["stat_j_unknown", "stat_u_nobody"])
def test_nothing_is_printed_where_nothing_is(run, server, name):
    server.says(ok({"jobs": []}))
    assert run("oarstat", "-j", "99999") == golden(name)


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
    assert run("oarstat", "-e", "-j", "66") == golden("stat_e")
    assert server.requests[0].path == "/api/v1/jobs/66/events"


def test_events_of_an_array_are_those_of_its_jobs(run, server):
    server.by_path["GET /api/v1/jobs?array=80&full=1"] = ok({"jobs": members()})
    server.says(ok({"events": []}))
    assert run("oarstat", "-e", "--array", "80") == golden("stat_e_array")
    assert [request.path for request in server.requests[1:]] == [f"/api/v1/jobs/{n}/events" for n in (80, 81, 82)]


def test_properties_of_a_jobs_resources_are_told(run, server):
    shown = golden("stat_p").out.splitlines()
    rows = [dict(re.findall(r"(\w+) = '([^']*)'", line)) for line in shown]
    kept = {"state": "Alive", "next_state": "UnChanged", "scheduler_priority": 0}
    server.says(ok({"resources": [row | kept | {"resource_id": at} for at, row in enumerate(rows, 1)]}))
    ran = run("oarstat", "-p", "-j", "78")
    assert server.requests[0].path == "/api/v1/jobs/78/resources"
    sort = [f" {' , '.join(sorted(line.strip().split(' , ')))} " for line in shown]
    assert (ran.code, ran.out.splitlines()) == (0, sort)


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
    "resources": [6],
}  # fmt: skip


def test_the_gantt_chart_is_data_by_number_under_the_names_of_oars_tables(run, server):
    alive = {"resource_id": 6, "network_address": "node1", "state": "Alive"}
    dead = {"resource_id": 9, "network_address": "node2", "state": "Dead"}
    server.says(ok({"jobs": [BAR], "resources": [alive, dead]}))
    ran = run("oarstat", "-J", "--gantt", "2026-11-15 18:03:18, 2026-11-15 18:43:18")
    assert server.requests[0].path == "/api/v1/gantt?since=1794765798&until=1794768198"
    told = json.loads(ran.out)
    assert (told["resources"], told["dead_resources"]) == ({"6": alive, "9": dead}, {"9": dead})
    # The golden output is cut off in its middle; its first job is ours, with four fields more.
    text = "{" + golden("stat_gantt_J").out.partition('"42" : {')[2].partition("},")[0] + "}"
    more = {"properties", "job_type", "launching_directory", "command"}
    assert told["jobs"] == {"42": {name: value for name, value in json.loads(text).items() if name not in more}}


def test_the_gantt_chart_for_people_is_by_start_and_names_what_is_away(run, server):
    later = BAR | {"Job_Id": 7, "startTime": 1794766780, "stopTime": 0, "resources": [1, 2]}
    away = {"resource_id": 9, "network_address": "node2", "state": "Suspected"}
    server.says(ok({"jobs": [later, BAR], "resources": [away]}))
    assert run("oarstat", "-g", "2026-11-15, 2026-11-16").out == (
        "Job id    S User     Start               End                 Resources\n"
        "--------- - -------- ------------------- ------------------- --------------------\n"
        "42        T alice    2026-11-15 18:19:30 2026-11-15 18:19:50 6\n"
        "7         T alice    2026-11-15 18:19:40 -                   1,2\n"
        "node2 9 : Suspected\n"
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
    server.says(ok({"rows": ROWS}))
    ran = run("oarstat", "--accounting", "2026-01-01, 2027-12-31")
    assert server.requests[0].path == "/api/v1/accounting?since=1767225600&until=1830297599"
    assert ran == golden("stat_accounting_Y")
    assert json.loads(run("oarstat", "-J", "--accounting", "2026-01-01, 2027-12-31").out) == {
        "alice": {"asked": 206363, "used": 1615, "begin": 1794700800, "end": 1794787199}
    }


def test_consumption_of_nobody_is_a_head(run, server):
    server.says(ok({"rows": []}))
    assert run("oarstat", "--accounting", "2026-01-01, 2027-12-31") == golden("stat_accounting_none")


@pytest.mark.parametrize(
    ("words", "name", "told"),
    [
        (["--nosuch"], "stat_bad_option", "There is no option --nosuch.\n"),
        (["-g", "garbage"], "stat_gantt_bad", "--gantt takes two dates, not `garbage`.\n"),
        (["--accounting", "garbage"], "stat_accounting_bad", "--accounting takes two dates, not `garbage`.\n"),
        (["-j", "abc"], "stat_j_garbage", "`abc` is no job number.\n"),
        (["-j"], "stat_j_garbage", "No job is named, neither here nor by $OAR_JOB_ID.\n"),
    ],
)
def test_what_cannot_be_meant_is_refused(run, server, words, name, told):
    ran = run("oarstat", *words)
    assert (ran.code, ran.out, ran.err[: len(told) + 9]) == (golden(name).code, "", f"oarstat: {told}")
    assert server.requests == []


def test_a_format_that_is_not_there_is_refused(run, server):
    assert run("oarstat", "--format", "9") == Ran(
        1, "", "oarstat: There is no format 9.\n  Write --format=1 or --format=2.\n"
    )
    assert server.requests == []


def test_a_bare_number_is_answered_with_the_option_it_needs(run):
    assert run("oarstat", "78").err == "oarstat: `78` is no option.\n  oarstat -j 78\n"


def test_a_refusal_of_the_server_is_told(run, server):
    server.says(refusal(404, "UnknownJob", "There is no job 9.", "`oarstat` lists yours."))
    ran = run("oarstat", "-e", "-j", "9")
    assert (ran.code, ran.out, ran.err) == (1, "", "oarstat: There is no job 9.\n  `oarstat` lists yours.\n")


def test_a_server_that_is_down_is_told(run):
    assert run("oarstat", OARLOCK_SERVER="/nowhere/server.sock").code == 2


def test_a_list_that_nobody_reads_to_its_end_is_no_error_to_tell_of(server):
    server.says(ok({"jobs": [view(n, message="x" * 100) for n in range(5000)]}))
    code = "import sys; from oarlock.cli.oarstat import main; sys.exit(main())"
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


def test_what_others_named_their_jobs_does_not_reach_the_terminal_as_commands(run, server):
    server.says(ok({"jobs": [view(1, "Terminated", message="\x1b[2Jgone\n2 W root", startTime=1, stopTime=2)]}))
    [*_, line] = run("oarstat").out.splitlines()
    assert line == "1         T alice       0:00:01 \\x1b[2Jgone\\n2 W root"


def test_the_duration_of_a_running_job_goes_on(run, server):
    server.says(ok({"jobs": [view(1, "Running", startTime=int(time.time()) - 3600)]}))
    assert " 1:00:0" in run("oarstat").out
