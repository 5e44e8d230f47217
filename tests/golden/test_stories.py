"""Jobs live, end and are told of as a real OAR 2.5.9 recorded it: states, events, exit codes, outputs, accounts."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from oarlock.model.job import JobState
from oarlock.store.queries.usage import accounting
from tests.bed import needs_root, script
from tests.e2e.instance import SOURCE
from tests.golden.live import Site, site
from tests.golden.records import RECORDS, differing_on_purpose
from tests.lang.cases import needs_golden

pytestmark = [needs_root, needs_golden]

S = JobState
FIELDS = ("state", "exit_code", "reservation", "job_type", "suspended", "stdout_file", "stderr_file")
UNTOLD = {"SCHEDULER_PRIORITY_UPDATED_START", "SCHEDULER_PRIORITY_UPDATED_STOP"}
"""Events about numbers that OAR keeps for its own use."""

SPELLED = {"CHECKPOINT_SUCCESSFULL": "CHECKPOINT_SUCCESS"}
TRAP = "trap 'echo GOT USR1' USR1; echo start; while :; do sleep 0.1; done"
FOR_EVER = "while :; do sleep 0.1; done"


@dataclass(frozen=True)
class Story:
    """The states of a job one after the other, its events, and what it was in the end."""

    states: list[str]
    events: list[str]
    fields: dict[str, str] = field(default_factory=dict)


def recorded(name: str) -> Story:
    """Read a recorded story."""
    text = (RECORDS / f"story_{name}.txt").read_text()
    head, states, events, *_ = text.split("\n\n")
    fields = {key.strip(): value.strip() for key, _, value in (line.partition("|") for line in head.splitlines())}
    told = re.findall(r"^ ([A-Z][A-Z_0-9a-z]+) +\|", events, re.MULTILINE)
    return Story(
        re.findall(r"^ (\w+) +\| +\d+ \|", states, re.MULTILINE),
        [SPELLED.get(one, one) for one in told if one not in UNTOLD],
        {name: fields[name] for name in FIELDS},
    )


def lived(live: Site, number: int) -> Story:
    """Read the same of one of our jobs."""
    job = live.job(number)
    fields = (
        str(job.state), "" if job.exit_code is None else str(job.exit_code), str(job.reservation), str(job.kind),
        "YES" if job.suspended else "NO", job.stdout, job.stderr,
    )  # fmt: skip
    return Story(live.story(number), live.events(number), dict(zip(FIELDS, fields, strict=True)))


@pytest.fixture(scope="module")
def live() -> Iterator[Site]:
    """An instance for the tests of this module."""
    with site() as made:
        yield made


class Jobs:
    """The jobs of the stories by their names."""

    def __init__(self, live: Site) -> None:
        self.live, self.numbers = live, dict[str, int]()

    def submit(self, name: str, *words: str, user: str = "alice") -> int:
        """Submit the job of a story."""
        ran = self.live.run(user, "oarsub", *words)
        assert "OAR_JOB_ID=" in ran.out, (name, ran)
        self.numbers[name] = int(ran.out.partition("OAR_JOB_ID=")[2].split()[0])
        return self.numbers[name]

    def until(self, state: JobState, *names: str) -> None:
        """Wait until these jobs are in a state."""
        for name in names:
            self.live.until_state(self.numbers[name], state)

    def act(self, user: str, command: str, *words: str) -> None:
        """Run a command; a word that is the name of a story is its job."""
        self.live.run(user, command, *(str(self.numbers.get(word, word)) for word in words))


CORE = ("-l", "core=1,walltime=0:1:0")


def ordinary(jobs: Jobs) -> None:
    """Jobs that end by themselves, by their walltime, by a signal or by somebody."""
    live = jobs.live
    told = script(live.home / "notify.sh", f'echo "$@" >> {live.home}/notify.log')
    jobs.submit("exit_99", *CORE, "exit 99")
    jobs.submit("kill9", *CORE, "kill -9 $$")
    jobs.submit("walltime", "-l", "core=1,walltime=0:0:2", TRAP)
    jobs.submit("checkpoint_sig10", "--checkpoint", "2", "--signal", "10", "-l", "core=1,walltime=0:0:3", TRAP)
    jobs.submit("signal", *CORE, TRAP)
    jobs.submit("del_running", "-n", "long1", *CORE, FOR_EVER)
    jobs.submit("del_hold", "--hold", *CORE, "true")
    jobs.submit("suspend_resume", *CORE, "while [ ! -e go ]; do sleep 0.1; done")
    jobs.submit("notify_exec", "-n", "nj", "--notify", f"exec:{told} x", *CORE, "exit 7")
    jobs.act("alice", "oardel", "del_hold")
    jobs.until(S.RUNNING, "signal", "del_running", "suspend_resume")
    jobs.submit("dep_on_error", "-a", str(jobs.numbers["del_hold"]), *CORE, "true")
    live.until(lambda: "start" in (live.home / f"OAR.{jobs.numbers['signal']}.stdout").read_text())
    for name in ("10", "SIGUSR1"):
        jobs.act("alice", "oardel", "-s", name, "signal")
    jobs.act("root", "oarhold", "-r", "suspend_resume")
    jobs.until(S.SUSPENDED, "suspend_resume")
    jobs.act("root", "oarresume", "suspend_resume")
    (live.home / "go").touch()
    jobs.act("alice", "oardel", "signal", "del_running")


def dated(jobs: Jobs) -> None:
    """Reservations that are kept, refused, held and deleted."""
    later = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 7200))
    soon = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(time.time() + 3))
    jobs.submit("resa_del", "-r", later, "-l", "nodes=4,walltime=0:1:0", "true")
    jobs.submit("resa_conflict", "-r", later, "-l", "nodes=4,walltime=0:1:0", "true")
    jobs.act("alice", "oarhold", "resa_del")
    jobs.act("alice", "oarresume", "resa_del")
    jobs.act("alice", "oardel", "resa_del")
    jobs.submit("resa_ok", "-r", soon, "-l", "core=1,walltime=0:1:0", "true")


def contained(jobs: Jobs) -> None:
    """Jobs in a container: one that fits, and two that never will."""
    live = jobs.live
    hosts = ("-p", f"host in ('{live.nodes[1]}', '{live.nodes[2]}')")
    room = jobs.submit("container", "-t", "container", *hosts, "-l", "nodes=2,walltime=0:5:0", FOR_EVER)
    jobs.until(S.RUNNING, "container")
    inner = ("-t", f"inner={room}")
    jobs.submit("inner", *inner, "-l", "nodes=1,walltime=0:1:0", "true")
    jobs.submit("inner_too_big", *inner, "-l", "nodes=3,walltime=0:1:0", "true")
    jobs.submit("inner_too_long", *inner, "-l", "nodes=1,walltime=0:20:0", "true")
    jobs.until(S.TERMINATED, "inner")
    assert {str(live.job(jobs.numbers[name]).state) for name in ("inner_too_big", "inner_too_long")} == {"Waiting"}
    jobs.act("alice", "oardel", "container")


SHARING = {
    "ts_1": ("alice", "user,*", 1, "x"), "ts_2": ("alice", "user,*", 1, "y"), "ts_3": ("bob", "user,*", 1, "x"),
    "ts_4": ("alice", "", 1, "z"), "ts_5": ("alice", "*,*", 2, ""), "ts_6": ("bob", "*,*", 2, ""),
    "ts_7": ("bob", "user,name", 2, ""), "ts_8": ("alice", "*,name", 3, "same"), "ts_9": ("bob", "*,name", 3, "same"),
    "ts_10": ("bob", "*,name", 3, "other"),
}  # fmt: skip
"""Whose job, how it shares, on which resource, and its name: the ten jobs of the record of intervals."""


def sharing(jobs: Jobs) -> None:
    """Jobs that share their time; those that were together in the record are together here, and no others."""
    live, first = jobs.live, 40
    for name, (user, kind, resource, called) in SHARING.items():
        words = ["-p", f"resource_id = {resource}", "-l", "resource_id=1,walltime=0:3:0"]
        words += ["-t", f"timesharing={kind}"] if kind else []
        words += ["-n", called] if called else []
        jobs.submit(name, *words, f"while [ ! -e {live.home}/shared ]; do sleep 0.1; done", user=user)
    rows = re.findall(r"^ +(\d+) \|.*\| +(\d+) \| +(\d+)$", (RECORDS / "ts_intervals.txt").read_text(), re.MULTILINE)
    at_first = [name for name, (_, begin, _) in zip(SHARING, rows, strict=True) if int(begin) < first]
    jobs.until(S.RUNNING, *at_first)
    states = {name: live.job(jobs.numbers[name]).state for name in SHARING}
    assert {name for name, state in states.items() if state is S.RUNNING} == set(at_first)
    (live.home / "shared").touch()
    jobs.until(S.TERMINATED, *SHARING)


def taken_away(jobs: Jobs) -> None:
    """Jobs whose node is taken away, and best-effort jobs that make room."""
    live = jobs.live
    last = live.nodes[3]
    for name, words in (("nsj_absent", ("-s", "Absent")), ("nsj_dead_nowait", ("-n", "-s", "Dead"))):
        jobs.submit(name, "-p", f"host = '{last}'", *CORE, FOR_EVER)
        jobs.until(S.RUNNING, name)
        jobs.act("root", "oarnodesetting", "-h", last, *words)
        jobs.until(S.ERROR, name)
        jobs.act("root", "oarnodesetting", "-h", last, "-s", "Alive")
    live.until(live.all_over)
    kind = ("-t", "besteffort")
    jobs.submit("bek_be", *kind, "-t", "idempotent", "-l", "nodes=1,walltime=0:30:0", FOR_EVER, user="bob")
    jobs.submit("bek_plain", *kind, "-l", "nodes=3,walltime=0:30:0", FOR_EVER, user="bob")
    jobs.until(S.RUNNING, "bek_be", "bek_plain")
    jobs.submit("bek_killer", "-l", "nodes=4,walltime=0:1:0", "true")
    jobs.until(S.TERMINATED, "bek_killer")
    jobs.numbers["bek_copy"] = jobs.numbers["bek_killer"] + 1
    assert live.job(jobs.numbers["bek_copy"]).resubmit_of == jobs.numbers["bek_be"]
    live.run("bob", "oardel", str(jobs.numbers["bek_copy"]))


def notes(text: str) -> list[str]:
    """Return what OAR wrote about a job into its own output, without dates and numbers."""
    return re.findall(r"^## OAR \[.*\] Job \d+ (.*) ##$", text, re.MULTILINE)


def recorded_files(name: str) -> dict[str, str]:
    """Read a record of several files, by the name of each."""
    parts = re.split(r"^==> .*/(.*) <==\n", (RECORDS / f"{name}.txt").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def assert_outputs(jobs: Jobs) -> None:
    """Compare what ended jobs left in their output files with the records of such files."""
    files = recorded_files("kill_outputs") | recorded_files("del_running_output")
    for name, story in {"OAR.83": "walltime", "OAR.85": "checkpoint_sig10", "OAR.long1.78": "del_running"}.items():
        ours = re.sub(r"\d+$", str(jobs.numbers[story]), name)
        for stream in ("stdout", "stderr"):
            text = (jobs.live.home / f"{ours}.{stream}").read_text()
            expected = re.sub(r" at \d+$", "", files[f"{name}.{stream}"].strip(), flags=re.MULTILINE)
            assert notes(text) == notes(expected), story
            assert stream == "stderr" or text.split() == expected.split(), story


NOT_A_LIVE_STORY = {"cpuset", "cpuset_error", "del_b", "prologue_error", "unreachable", "unreachable_resa"}
"""They need a node that is broken or another setting; the page of differences says which test stands for each."""


@pytest.mark.manual(27, 28, 59, 64, 66, 99, 107, 137, 138, 145, 151, 183, 184, 193, 194, 201, 202)
def test_jobs_live_and_end_as_recorded_of_oar(live: Site):
    jobs = Jobs(live)
    for part in (ordinary, dated, contained, sharing, taken_away):
        part(jobs)
    live.until(live.all_over)
    assert_outputs(jobs)
    names = {path.stem.removeprefix("story_") for path in RECORDS.glob("story_*.txt")} - NOT_A_LIVE_STORY
    assert names - jobs.numbers.keys() == set()
    differing = {}
    for name in sorted(names):
        expected, found = recorded(name), lived(live, jobs.numbers[name])
        if expected != found:
            differing[f"story_{name}"] = f"{expected}\n{found}"
    named = {name for name in differing_on_purpose() if name.startswith("story_")} - {
        f"story_{name}" for name in NOT_A_LIVE_STORY
    }
    problems = [f"{name}: {text}" for name, text in differing.items() if name not in named]
    assert not problems, "\n\n".join(problems)
    assert named - differing.keys() == set(), "named as differing, and do not"


def test_exit_codes_are_stored_and_shown_as_oar_does(live: Site):
    text = (RECORDS / "exitcodes.txt").read_text()
    rows = re.findall(r"^ +\d+ \| (.*?) +\| (\w+) +\| +(\d+) \| +(\d+) \| +(\d+) \| +(\d+)$", text, re.MULTILINE)
    assert len(rows) == 11
    (live.home / "noexec.sh").write_text("true\n")
    numbers = {}
    for command, *_ in rows:
        ran = live.run("alice", "oarsub", *CORE, command)
        numbers[command] = int(ran.out.rpartition("OAR_JOB_ID=")[2])
    for command, state, raw, *parts in rows:
        live.until_state(numbers[command], S(state))
        shown = live.run("alice", "oarstat", "-fj", str(numbers[command])).out
        assert f"    exit_code = {raw} ({','.join(parts)})\n" in shown, command
        assert live.job(numbers[command]).exit_code == int(raw), command


@pytest.mark.manual(2, 46)
def test_an_interactive_session_prints_the_lines_that_oar_prints(live: Site):
    text = (RECORDS / "int_sub.txt").read_text()
    ran = live.run("alice", "oarsub", "-I", "-l", "core=1,walltime=0:2:0", stdin="env | grep ^OAR; exit 3\n")
    expected = [
        line.replace("node1", "NODE").replace("125", "N")
        for line in text.splitlines()
        if line.startswith(("[ADMISSION", "OAR_JOB_ID=", "Interactive", "Starting", "Connect to", "Disconnected"))
    ]
    number = ran.out.partition("OAR_JOB_ID=")[2].split()[0]
    ours = re.sub(rf"\b{number}\b", "N", ran.out)
    for node in live.nodes:
        ours = re.sub(rf"\b{node}\b", "NODE", ours)
    assert ran.code == 0
    assert [line for line in ours.splitlines() if line in expected] == expected
    recorded_variables = set(re.findall(r"^(OAR_\w+)=", text, re.MULTILINE)) - {"OAR_KEY"}
    assert recorded_variables - set(re.findall(r"^(OAR_\w+)=", ran.out, re.MULTILINE)) == set()


def test_programs_are_told_of_a_job_in_the_words_that_oar_uses(live: Site):
    """Number, name and tag behind the program's own words; what OAR calls RUNNING is START, as the manual has it."""
    told = live.home / "told"
    program = script(live.home / "tell.sh", f'echo "$@" >> {told}')
    ran = live.run("alice", "oarsub", "-n", "nj", "--notify", f"exec:{program} x", *CORE, "exit 7")
    number = ran.out.rpartition("OAR_JOB_ID=")[2].strip()
    live.until(lambda: told.exists() and told.read_text().count("\n") == 2)
    lines = re.findall(r"^\d+ (x 86 nj \w+)", (RECORDS / "notify_exec_log.txt").read_text(), re.MULTILINE)
    words = [line.replace("86", number).replace("RUNNING", "START") for line in lines]
    assert [" ".join(line.split()[:4]) for line in told.read_text().splitlines()] == words


def test_sums_of_accounting_are_what_each_job_asked_for_and_used(live: Site):
    """As in OAR's rows: ASKED is walltime and USED is time, each times the resources, by project and queue."""
    asked = {"pp": ("-l", "core=3,walltime=0:3:0"), "proj1": ("-l", "core=1,walltime=0:1:0")}
    for project, words in asked.items():
        live.run("alice", "oarsub", "--project", project, *words, "sleep 1.1")
    live.until(live.all_over)
    live.run("root", "oaraccounting")
    with live.database.read() as tx:
        rows = [row for row in accounting.listed(tx) if row.project in asked]
    text = (RECORDS / "accounting_rows.txt").read_text()
    recorded_rows = re.findall(r"\| (pp|proj1) +\| (\w+) +\| ASKED +\| +(\d+)$", text, re.MULTILINE)
    assert sorted((row.project, row.queue, str(row.consumption)) for row in rows if row.kind == "ASKED") == sorted(
        recorded_rows
    )
    used = {row.project: row.consumption for row in rows if row.kind == "USED"}
    assert used["pp"] % 3 == 0 < used["proj1"] < 60


HEAD = re.compile(r"^ {0,6}((?:--?[A-Za-z][\w-]*(?:[ ,|]+|(?=[=\s\[<]|$)))+)", re.MULTILINE)


def options(text: str) -> set[str]:
    """Return the options that a help text begins its lines with."""
    return {word.rstrip(",") for head in HEAD.findall(text) for word in re.findall(r"--?[A-Za-z][\w-]*", head)}


@pytest.mark.manual(32)
def test_every_option_of_oars_help_texts_is_an_option_here(live: Site):
    missing = {}
    for path in sorted(RECORDS.glob("help_*.txt")):
        command = path.stem.removeprefix("help_")
        if path.stem in differing_on_purpose() or not (SOURCE / "oarlock" / "cli" / f"{command}.py").exists():
            continue
        ours = options(live.run("root", command, "--help").out)
        if unknown := {word for word in options(path.read_text()) if word.replace("_", "-") not in ours}:
            missing[command] = unknown
    assert missing == {}


def test_the_version_is_printed_in_the_form_that_oar_has(live: Site):
    for path in sorted(RECORDS.glob("version_*.txt")):
        command, text = path.stem.removeprefix("version_"), path.read_text()
        if "exit=0" in text and "version" in text and command not in ("oarsh", "oarprint"):
            ran = live.run("alice", command, "-V")
            assert (ran.code, ran.out.split()[1:3]) == (0, ["version", ":"]), command
