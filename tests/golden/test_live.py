"""What a live server answers is what a real OAR 2.5.9 was seen to answer to the same commands."""

import html
import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from oarlock.model.job import JobState
from tests.bed import needs_root, script
from tests.databases import Postgres
from tests.e2e.instance import SOURCE
from tests.golden.live import Ran, Site, site
from tests.golden.play import Play
from tests.golden.records import DIFFERENCES, RECORDS, differing_on_purpose, record
from tests.lang.cases import needs_golden, oar_cases

pytestmark = [needs_root, needs_golden]

S = JobState

PROGRAM = (
    f"PYTHONPATH={SOURCE} {sys.executable} -c 'from oarlock.cli.jobs.oarprint import main; raise SystemExit(main())'"
)
"""oarprint inside a job: what a console script does."""

NOT_HERE = (22, 53)
"""Recorded jobs that wait for a licence and for a job that never was: neither can be had here."""

NEED_A_SHELL = {"bad_cwd", "sub_k_export"}
"""Records of several commands of a shell."""

MORE_SUBMISSIONS = (
    "be_del_b_sub", "bek_be", "ckpt_sub", "ckpt_sub_short", "dep_on_error", "dep_on_failed", "exitcode_sub___noexec_sh",
    "exitcode_sub_exit_1", "exitcode_sub_exit_3", "hold_run_sub", "inner_sub", "inner_sub2", "inner_too_big",
    "inner_too_long", "job_env_submit", "notify_exec_sub", "nsj_sub", "nsj_sub2", "sig_sub", "ts_a1", "ts_n1", "ts_n2",
    "ts_s3", "wall_sub",
)  # fmt: skip
"""Submissions of jobs whose lives were recorded: those are told elsewhere (test_stories.py)."""

SCRIPT = """#!/bin/sh
#OAR -n scanned_job
#OAR -l core=1,walltime=0:1:0
#OAR -p "mem > 16"
#OAR -t besteffort
#OAR --project myproj
true
"""


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def live(request: pytest.FixtureRequest) -> Iterator[Site]:
    """An instance for all tests of this module; those that change it put back what others look at."""
    if request.param == "sqlite":
        with site() as made:
            yield made
        return
    postgres: Postgres = request.getfixturevalue("postgres")
    address = postgres.make(template="template0")
    with site(address) as made:
        yield made
    postgres.drop(address)


def listings(play: Play) -> None:
    """A job that is over, one on hold, two that run and an array that waits, and everything that lists them."""
    first = play.submit(1, "alice", "-l", "nodes=1,walltime=0:1:0", "true")
    play.site.until_state(first, S.TERMINATED)
    play.numbers[66] = first
    play.compare("stat_e")
    del play.numbers[66]
    play.submit(34, "alice", "--hold", "-l", "core=1,walltime=0:1:0", "true")
    play.compare("live1", "live2")
    for recorded in (78, 79):
        play.site.until_state(play.job(recorded), S.RUNNING)
    play.compare("live3")
    play.site.until(lambda: "no prediction" not in play.site.run("bob", "oarstat", "-fj", str(play.job(82))).out)
    play.compare("stat_plain", "stat_u_me", "stat_compact", "stat_format3", without=NOT_HERE)
    play.compare("stat_array_f", "stat_fj_waiting", hidden="command")  # which is its owner's to see
    play.compare(
        "stat_u_bob", "stat_u_nobody", "stat_array", "stat_j_terminated", "stat_j_s",
        "stat_s_two", "stat_D", "stat_X", "stat_Y", "stat_J_f", "stat_s_dumper", "stat_s_json", "stat_s_xml",
        "stat_s_yaml", "stat_p", "stat_e_array", "stat_j_unknown", "stat_j_garbage", "stat_bad_option",
        "stat_accounting_bad", "stat_gantt_bad", "nodes_plain", "nodes_node1", "nodes_r", "nodes_r_two", "nodes_X",
        "nodes_Y", "nodes_Y_all", "nodes_J_all", "nodes_l", "nodes_s_node", "nodes_s_J", "nodes_s_Y",
        "nodes_e_node", "nodes_node_unknown", "nodes_sql_bad", "nodes_bad_option",
    )  # fmt: skip


def signals(play: Play) -> None:
    """Jobs that run are sent signals, suspended and resumed."""
    site = play.site
    script(site.home / "cs.sh", "sleep 200")
    play.submit(128, "alice", "-p", "resource_id = 2", "-l", "resource_id=1,walltime=0:5:0", "./cs.sh 40")
    for recorded in (87, 88, 89, 123):
        words = ("-p", f"host = '{site.nodes[3]}'") if recorded == 123 else ()
        play.submit(
            recorded, "alice", *words, "-l", "core=1,walltime=0:5:0", "trap : USR1 USR2; while :; do sleep 1; done"
        )
    play.submit(90, "alice", "-t", "noop", "-l", "core=1,walltime=0:5:0")
    running = (87, 88, 89, 123, 90, 128)
    for recorded in running:
        site.until_state(play.job(recorded), S.RUNNING)
    play.compare(
        "del_s_signal", "del_s_named", "del_c_checkpoint_nockpt", "del_b", "del_force_term", "hold_none",
        "hold_running_no_r", "hold_unknown", "resume_running", "resume_other", "resume_unknown", "resume_noop_root",
        "cs_hold_user", "cs_resume_user", "hold_running_r_user",
        "hold_running_r_root", "hold_noop_r_root",
    )  # fmt: skip
    site.until_state(play.job(89), S.SUSPENDED)
    site.run("root", "oarhold", "-r", str(play.job(128)))
    site.until_state(play.job(128), S.SUSPENDED)
    [suspended] = json.loads(site.run("alice", "oarnodes", "-J", "-r", "2").out).values()
    assert (suspended["suspended_jobs"], suspended["jobs"]) == ("YES", str(play.job(128)))
    play.compare("cs_stat_susp_f", "cs_nodes_susp")
    play.compare("cs_resume_user", "cs_resume_root")
    play.compare("nsj_absent_wait")
    site.run("root", "oarnodesetting", "-h", site.nodes[3], "-s", "Alive")
    site.run("alice", "oardel", *(str(play.job(recorded)) for recorded in running if recorded != 123))
    site.until(site.all_over)


def walltimes(play: Play) -> None:
    """The walltime of a running job is shown and changed."""
    site = play.site
    play.submit(117, "alice", "--hold", "-l", "core=1,walltime=0:2:0", "sleep 300")
    play.submit(120, "alice", "-p", f"host='{site.nodes[3]}'", "-l", "core=1,walltime=0:2:0", "sleep 300")
    site.until_state(play.job(120), S.RUNNING)
    play.compare("wt_not_running", "wt_not_running2", "wt_show", "wt_too_big", "wt_unknown")
    assert site.run("bob", "oarwalltime", str(play.job(120)), "+0:5").code == 1
    ran = site.run("alice", "oarwalltime", str(play.job(120)), "+0:5")
    assert (ran.code, ran.out.split(":")[0]) == (0, "Accepted")
    site.until(lambda: "granted: +0:5:0" in site.run("alice", "oarstat", "-fj", str(play.job(120))).out)
    play.compare("wt_stat")
    site.run("alice", "oarwalltime", str(play.job(120)), "-0:1")
    site.until(lambda: "granted: +0:4:0" in site.run("alice", "oarstat", "-fj", str(play.job(120))).out)
    play.compare("stat_e_all")
    site.run("alice", "oardel", str(play.job(117)), str(play.job(120)))
    site.until(site.all_over)


def reservations(play: Play) -> None:
    """Dates are asked for, held and resumed."""
    play.compare("hold_wait_sub", "hold_reservation", "resume_reservation")
    play.site.run("alice", "oardel", str(play.job(91)))
    play.compare("resa_ok", "resa_stat_f", "resa_second", "resa_third_limit", "resa_too_many", "resa_moldable")
    play.site.run("root", "oardel", "--sql", "state = 'Waiting'")


def endings(play: Play) -> None:
    """Jobs are deleted, and what cannot be."""
    play.compare(
        "del_other_user", "del_garbage", "del_none", "del_sql_none", "del_hold", "del_waiting_array",
        "del_besteffort_running",
    )  # fmt: skip
    number = play.job(78)
    play.site.run("alice", "oardel", str(number))
    play.site.until_state(number, S.ERROR)
    play.compare("del_again")


def submissions(play: Play) -> None:
    """Everything that was submitted, while no queue starts a job."""
    play.site.run("root", "oarnotify", "--add-queue", "night,3,oar_sched_gantt_with_timesharing")
    play.compare("notify_D", "notify_l2", "sub_queue_disabled", "stat_queue_disabled", "notify_l_disabled")
    home = play.site.home
    for name, text in {"script.sh": SCRIPT, "noexec.sh": SCRIPT, "badscan.sh": "#OAR --bogus 1\n"}.items():
        (home / name).write_text(text)
    (home / "script.sh").chmod(0o755)
    names = sorted(path.stem for path in (*RECORDS.glob("sub_*.txt"), *RECORDS.glob("bad_*.txt")))
    first = "sub_name_project"  # others wait for it
    play.compare(first, *[name for name in names if name not in {first, *play.seen, *NEED_A_SHELL}])
    play.compare("odd_walltime_90min", "dep_bad", "noop_sub", "resa_short_date")
    for name in ("trap.sh", "notify.sh", "env.sh"):
        script(home / name, "true")
    play.compare("fail_sub", "cont_sub")
    play.numbers[29] = play.job(92)
    play.compare(*MORE_SUBMISSIONS)
    play.numbers[22] = play.job(92)
    play.compare("del_waiting")
    play.site.run("root", "oardel", "--sql", "state = 'Waiting'")
    play.site.run("root", "oarnotify", "-E", "--remove-queue", "night")


def resources(play: Play) -> None:
    """Resources come, change and go."""
    play.compare(
        "nset_add", "nset_h_absent", "nset_after_absent",
        "nset_sql", "nset_sql_none", "nset_sql_bad", "nset_last", "nset_p_badsyntax", "nset_add_badprop",
        "nset_p_system", "nset_p_unknown", "nset_none", "nset_add_badstate", "nset_add_state", "rm_garbage", "rm_none",
    )  # fmt: skip
    play.site.run("root", "oarnodesetting", "-r", "33", "-s", "Dead")
    play.compare("rm_dead")
    play.site.run("root", "oarremoveresource", "34")


def settings(play: Play) -> None:
    """Properties, queues and accounts."""
    play.compare(
        "prop_l", "prop_a_int", "prop_a_two", "prop_q", "prop_a_badname", "prop_d_system", "prop_d_unknown",
        "prop_r_bad", "prop_r_system", "prop_none", "prop_user", "notify_l", "notify_none", "notify_tag",
        "notify_e_unknown", "acc_delete_before", "acc_user",
    )  # fmt: skip
    play.site.run("root", "oarproperty", "-q", "-c", "-a", "upper", "-a", "p9")
    play.compare("prop_l2", "prop_d", "prop_d_multi")
    play.site.run("root", "oarproperty", "-q", "-d", "gpu", "-d", "p1")


PARTS: tuple[Callable[[Play], None], ...] = (
    listings, endings, signals, walltimes, reservations, submissions, resources, settings,
)  # fmt: skip


@pytest.mark.manual(1, 10, 12, 18, 19, 31, 50, 51, 52, 55, 56, 57, 58, 59, 60, 63, 66, 69, 70, 72, 73, 77, 83)
def test_every_recorded_command_is_answered_as_oar_did(live: Site):
    play = Play(live)
    for part in PARTS:
        part(play)
    named = {name for name in differing_on_purpose() if not name.startswith("story_")}
    problems = [f"{name}: {text}" for name, text in play.differing.items() if name not in named]
    assert not problems, "\n\n".join(problems)
    assert named - play.differing.keys() == set(), "named as differing, and do not, or were not compared"


REFUSED = [
    ("alice", "oarsub -I -r '2030-01-01 00:00:00'", 7),
    ("alice", "oarsub -I --array-param-file nowhere", 9),
    ("alice", "oarsub -C 1234 -t noop", 17),
    ("alice", "oarsub --array 0 true", 6),
    ("alice", "oarsub -l nothere=4 true", 8),
    ("alice", "oarsub -l resource_id=33 true", 8),
    ("alice", "oarsub -l resource_id=4 -p 'yopyop SELECT' true", 8),
    ("alice", "oarsub -p 1=2 true", 8),
    ("alice", "oarsub -q nosuch true", 248),
    ("alice", "oarsub -t nosuch true", 254),
    ("alice", "oarsub -t inner=1 true", 254),
    ("alice", "oarsub -l core true", 255),
    ("alice", "oarsub -l core=1,walltime=x true", 255),
    ("alice", "oarsub --notify me true", 250),
    ("alice", "oarsub -r '2001-01-01 00:00:00' true", 10),
    ("alice", "oarsub -a 99 true", 8),
    ("root", "oarnodesetting -h nosuch -p mem=1", 4),
    ("root", "oarnodesetting -h nosuch -s Dead", 4),
    ("root", "oarnodesetting -r 999 -p mem=1", 3),
    ("root", "oarnodesetting -r 999 -s Dead", 3),
    ("root", "oarremoveresource 1", 2),
    ("root", "oarremoveresource 999", 2),
    ("root", "oarnodesetting --sql 'bogus = 1' -s Dead", 12),
    ("root", "oarproperty -c -a cpu", 1),
    ("root", "oarproperty -a host", 255),
]
"""Commands, and the exit code that OAR has for the reason they are refused for."""


@pytest.mark.manual(10, 13, 21, 71, 77)
def test_a_refusal_ends_with_oars_number_and_changes_nothing(live: Site):
    def everything() -> tuple[str, str]:
        listed = live.run("root", "oarstat", "-s", "--sql", "job_id > 0"), live.run("root", "oarnodes", "-J")
        return listed[0].out, listed[1].out

    before = everything()
    ended = [(user, line, live.run(user, *shlex.split(line))) for user, line, _ in REFUSED]
    assert [(user, line, ran.code) for user, line, ran in ended] == REFUSED
    assert [line for _, line, ran in ended if not ran.err.startswith(f"{line.partition(' ')[0]}: ")] == []
    assert everything() == before


def test_commands_of_oars_own_tests_end_with_the_number_they_expect(live: Site):
    cases = [case.values[0] for case in oar_cases("oarsub_cli") if "exit" in case.values[0].get("expected", ())]
    ended = {case["id"]: live.run("alice", "oarsub", *case["input"]["argv"]).code for case in cases}
    assert ended == {case["id"]: case["expected"]["exit"] for case in cases}


def test_oarprint_reads_what_oarstat_prints_and_the_file_of_the_job(live: Site):
    words = record("stat_p_oarprint").words
    form = words[words.index("oarprint") + 1 :]
    told = sorted(record("stat_p_oarprint").out.splitlines())  # OAR prints them in any order
    inside = f"{PROGRAM} {shlex.join([word for word in form if word not in ('-f', '-')])} > printed"
    job = submitted(live, "alice", "-p", f"host = '{live.nodes[0]}'", "-l", "/cpu=1,walltime=0:1:0", inside)
    live.until_state(job, S.TERMINATED)
    piped = live.run("alice", "oarstat", "-j", str(job), "-p").out
    printed = live.run("alice", "oarprint", *form, stdin=piped)
    assert (printed.code, printed.err) == (0, "")
    assert [line.replace(live.nodes[0], "node1") for line in printed.out.splitlines()] == told
    assert (live.home / "printed").read_text() == printed.out


def test_a_reservation_for_now_starts_at_once_and_shows_its_origin(live: Site):
    words = ("-r", "now", "-t", "origin=library", "-t", "expire=2099-01-01 00:00:00", "--signal", "USR1")
    ran = live.run("alice", "oarsub", *words, "-l", "core=1,walltime=0:5:0", "sleep 200")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "Reservation valid --> OK"), ran
    job = int(ran.out.partition("OAR_JOB_ID=")[2].split()[0])
    live.until_state(job, S.RUNNING)
    assert "    types = origin=library, expire=2099-01-01 00:00:00\n" in live.run("bob", "oarstat", "-fj", str(job)).out
    live.run("alice", "oardel", str(job))
    live.until_state(job, S.ERROR)


def test_a_job_that_does_not_exist_is_an_empty_answer_with_a_hint(live: Site):
    hint = "oarstat: There is no job 99999.\n  `oarstat` lists yours.\n"
    for option in ("-j", "-pj", "-ej", "-sj", "--usage -j"):
        assert live.run("alice", "oarstat", *option.split(), "99999") == Ran(0, "", hint), option


def test_of_nodes_and_resources_those_that_exist_are_told(live: Site):
    ran = live.run("alice", "oarnodes", "-s", "nosuch", live.nodes[0])
    assert (ran.code, ran.err) == (0, "oarnodes: There is no node `nosuch`.\n  `oarnodes -l` lists them.\n")
    assert ran.out.splitlines()[:2] == [live.nodes[0], "    1 : Alive"]
    ran = live.run("alice", "oarnodes", "-s", "-r", "999", "-r", "3")
    assert (ran.code, ran.out.splitlines()[1:]) == (0, ["    3 : Alive"])


def test_adding_a_property_that_is_there_is_no_error(live: Site):
    for words in (["-a", "cpu"], ["-a", "mem"], ["-c", "-a", "host"], ["-a", "available_upto"]):
        told = f"oarproperty: The property `{words[-1]}` is there already; nothing was changed.\n"
        assert live.run("root", "oarproperty", *words) == Ran(0, "", told)
        assert live.run("root", "oarproperty", "-q", *words) == Ran(0, "", "")


def test_without_a_server_nothing_is_changed_and_oars_number_says_so(live: Site):
    """Where OAR's commands read and write the database themselves (0), ours end with what no server means to them."""
    for path in sorted(RECORDS.glob("down_*.txt")):
        told = record(path.stem)
        if told.words[0] == "timeout":
            told = replace(told, words=told.words[2:])
        ran = live.run(told.user, *told.words, OARLOCK_SERVER="/nowhere/server.sock")
        assert (ran.code == told.code) != (told.code == 0), path.stem
        assert (ran.out, len(ran.err.splitlines())) == ("", 2), path.stem
        assert "server" in ran.err, path.stem
        assert told.words[0] == "oarstat" or "nothing was changed" in ran.err, path.stem


def test_every_record_is_compared_or_named_on_the_page_of_differences():
    written = "".join(path.read_text() for path in Path(__file__).parent.glob("*.py"))
    families = ("sub_", "bad_", "help_", "version_", "story_", "down_")
    page = DIFFERENCES.read_text()
    left = [
        path.stem for path in RECORDS.glob("*.txt")
        if not path.stem.startswith(families)
        and not re.search(rf"\b{path.stem}\b", written)
        and f"`{path.stem}`" not in page
    ]  # fmt: skip
    assert left == []


def test_deleting_a_job_that_ended_by_itself_is_no_error(live: Site):
    [over, killed] = [submitted(live, "alice", "-l", "core=1,walltime=0:1:0", word) for word in ("true", "sleep 60")]
    live.until_state(over, S.TERMINATED)
    live.until_state(killed, S.RUNNING)
    live.run("alice", "oardel", str(killed))
    live.until_state(killed, S.ERROR)
    for _ in range(2):  # also the second time: nobody killed it
        told = f"oardel: Job {over} is already Terminated.\n"
        assert live.run("alice", "oardel", str(over)) == Ran(0, f"Deleting the job = {over} ...ALREADY OVER.\n", told)
    assert live.run("alice", "oardel", str(killed), str(over)).code == 6
    assert {"    scheduledStart = no prediction"} < set(live.run("alice", "oarstat", "-fj", str(over)).out.splitlines())


def test_only_real_changes_of_properties_are_counted(live: Site):
    live.run("root", "oarnodesetting", "-r", "1", "-p", "mem=17")
    ran = live.run("root", "oarnodesetting", "-r", "1", "-r", "2", "-p", "mem=17", "-p", "cpu=1")
    live.run("root", "oarnodesetting", "-r", "1", "-r", "2", "-p", "mem=16")
    assert ran.out == (
        "Set property mem to '17'... 1 resource(s) updated.\nSet property cpu to '1'... 0 resource(s) updated.\n"
    )


def test_the_last_value_of_what_has_none_is_a_warning(live: Site):
    ran = live.run("root", "oarnodesetting", "--last-property-value", "switch")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err.startswith("oarnodesetting: No resource has a value of `switch`.")


def test_a_queue_may_be_added_by_its_name_alone(live: Site):
    assert live.run("root", "oarnotify", "--add-queue", "plain") == Ran(0, "Add queue plain.\n", "")
    queues = json.loads(live.run("root", "oarnotify", "-l", "-J").out)
    assert (queues["plain"]["priority"], queues["plain"]["policy"]) == (0, queues["default"]["policy"])
    live.run("root", "oarnotify", "--remove-queue", "plain")


def test_available_upto_is_another_name_of_cm_availability(live: Site):
    ran = live.run("root", "oarnodesetting", "-r", "3", "-p", "available_upto=2147483647")
    assert ran.out == "Set property available_upto to '2147483647'... 1 resource(s) updated.\n"
    shown = json.loads(live.run("alice", "oarnodes", "-J", "--sql", "available_upto > 0").out)
    live.run("root", "oarnodesetting", "-r", "3", "-p", "cm_availability=0")
    assert {number: (row["available_upto"], row["cm_availability"]) for number, row in shown.items()} == {
        "3": (2147483647, 2147483647)
    }


@pytest.mark.manual(78, 79)
def test_a_user_s_accounts_are_summed_by_project_with_karma(live: Site):
    ids = [
        submitted(live, "alice", "--project", project, "-l", "core=2,walltime=0:1:0", "sleep 1.1")
        for project in ("sums1", "sums2")
    ]
    for job in ids:
        live.until_state(job, S.TERMINATED)
    shown = json.loads(live.run("alice", "oarstat", "-J", "-f", *(f"-j{job}" for job in ids)).out)
    lines = live.run("root", "oaraccounting", "--reinitialize").out.splitlines()
    for job, project in zip(ids, ("sums1", "sums2"), strict=True):
        used = 2 * (shown[str(job)]["stopTime"] - shown[str(job)]["startTime"])
        at = lines.index(f"[ACCOUNTING] Treate job {job}")
        created = rf"\[ACCOUNTING\] Create new window \d+ --> \d+ , project {project}, user {live.users['alice']}, "
        assert re.fullmatch(created + rf"queue default, type USED with conso = {used} s", lines[at + 1])
        assert re.fullmatch(created + r"queue default, type ASKED with conso = 120 s", lines[at + 2])
    period = ["--accounting", "2026-01-01, 2100-01-01", "-u", live.users["alice"]]
    [told] = json.loads(live.run("bob", "oarstat", "-J", *period).out).values()
    assert told["asked"] == sum(project["asked"] for project in told["projects"].values())
    assert [told["projects"][name]["asked"] for name in ("sums1", "sums2")] == [120, 120]
    karma = f"    Karma               : {told['projects']['sums1']['karma']:.3f}"
    assert karma in live.run("bob", "oarstat", *period).out.splitlines()


@pytest.mark.manual(54)
def test_a_chart_has_everything_of_one_s_own_jobs(live: Site):
    job = submitted(live, "alice", "-l", "core=1,walltime=0:1:0", "-p", "mem = 16", "echo secret")
    live.until_state(job, S.TERMINATED)
    recorded = "{" + record("stat_gantt_J").out.partition('"42" : {')[2].partition("},")[0] + "}"
    when = "2026-01-01 00:00:00, 2100-01-01 00:00:00"
    live.run("root", "oarnodesetting", "-r", "8", "-s", "Absent")
    chart = json.loads(live.run("alice", "oarstat", "-J", "-g", when).out)
    live.run("root", "oarnodesetting", "-r", "8", "-s", "Alive")
    assert chart["jobs"][str(job)].keys() == json.loads(recorded).keys()
    [*_, (since, until, state)] = chart["dead_resources"]["8"]  # tests before this one may have taken it away, too
    assert (state, until, chart["jobs"][str(job)]["stop_time"] <= since < until) == ("Absent", 4102444800, True)
    period = ["-X", "-g", "2026-01-01 00:00:00, 2100-01-01 00:00:00"]
    own, other = ([*live.run(user, "oarstat", *period).out.splitlines()] for user in ("alice", "bob"))
    [begin] = [at for at, line in enumerate(own) if f'<item key="{job}">' in line]
    fields = [html.unescape(line.strip()) for line in own[begin : begin + 60]]
    for name, value in {
        "command": "echo secret", "job_type": "PASSIVE", "launching_directory": str(live.home),
        "properties": "(mem = 16 AND desktop_computing = 'NO') AND drain = 'NO'",
    }.items():  # fmt: skip
        assert f'<item key="{name}">{value}</item>' in fields
    assert not [line for line in other if "secret" in line]


ODD = [
    ("root", "oarnotify --add-queue 'a b,1,x'"),
    ("root", "oarnotify --add-queue 'ab,1,x*'"),
    ("root", "oarnotify --add-queue ab,99999999999"),
    ("root", "oarnodesetting -a -h ''"),
    ("root", "oarnodesetting -r 99999999999999999999999 -s Dead"),
    ("root", "oarremoveresource 99999999999999999999999"),
    ("root", "oaraccounting --delete-before 999999999999999999999"),
    ("alice", "oaraccounting"),
    ("alice", "oarhold -r 100000"),
    ("alice", "oarstat -j 99999999999999999999999"),
    ("alice", "oarstat --why 99999999999999999999999"),
    ("alice", "oardel 99999999999999999999999"),
    ("alice", "oarnodes -r 99999999999999999999999"),
    ("alice", "oarsub -a 99999999999999999999999 true"),
]
"""Commands that the server, or the command itself, cannot make sense of."""

INTERNAL = re.compile(r"\$\.|\^\[|regex|Its fields are|\[0\]|\b(jobs|accounting|resources|queues)\.\w|Traceback")


def test_no_internal_word_reaches_a_terminal(live: Site):
    for user, line in ODD:
        ran = live.run(user, *shlex.split(line))
        assert ran.code not in (0, 99), line
        assert ran.err.startswith(f"{line.partition(' ')[0]}: "), line
        assert INTERNAL.findall(ran.err) == [], line


OARLOCK = {
    "": "COMMAND is missing.\n  `oarlock --help` explains what can be given.",
    "serv": "There is no command `serv`.\n  Did you mean serve?",
    "serve --sate=x": "There is no option --sate.\n  Did you mean --state?",
    "serve --state": "--state needs a value.\n  `oarlock serve --help` explains what can be given.",
    "serve x": "`x` is one word too many.\n  `oarlock serve --help` explains what can be given.",
    "config /nowhere": "There is no settings file /nowhere.\n  Name another, or none for defaults.",
}


def test_oarlock_refuses_in_the_form_of_the_other_commands(live: Site):
    told = {words: live.run("root", "oarlock", *words.split()) for words in OARLOCK}
    assert told == {words: Ran(2, "", f"oarlock: {sentence}\n") for words, sentence in OARLOCK.items()}


def submitted(live: Site, user: str, *words: str) -> int:
    """Submit a job and return its number."""
    return int(live.run(user, "oarsub", *words).out.rpartition("OAR_JOB_ID=")[2])
