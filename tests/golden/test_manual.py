"""The examples of OAR's manual, typed as they are printed there, do what the manual says."""

import re
import shlex
import sqlite3
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.config import load
from oarlock.model.job import JobState
from oarlock.store.queries.usage import accounting
from tests.bed import needs_root
from tests.golden.live import Ran, Site, site

S = JobState
MANUAL = sorted((Path(__file__).parents[3] / "shared" / "seeds").glob("001_*.txt"))
needs_manual = pytest.mark.skipif(not MANUAL, reason="../shared/seeds is not there")

SUBMITTED = """
oarsub -l /node=4 test.sh
oarsub --stdout='test12.%jobid%.stdout' --stderr='test12.%jobid%.stderr' -l /nodes=4 test.sh
oarsub -q default -l /node=10/cpu=3,walltime=2:15:00 -p "switch = 'sw1'" /home/users/toto/prog
oarsub -r "2009-04-27 11:00:00" -l /node=12/cpu=2
oarsub -C 42
oarsub -I
"""
LISTED = """
oarstat
oarstat -j 42 -f
oarstat --sql "project = 'p1'"
oarnodes
oarnodes -s
oarnodes --sql "state = 'Suspected'"
"""
DELETED = """
oardel 14 42
oardel -c 42
"""
ADMINISTERED = """
oarproperty -a cpu_freq
oarproperty -a type
oarproperty -r "cpu_freq,freq"
oaraccounting --delete_before 2678400
"""


class Cluster(Site):
    """Twelve nodes of three processors on one switch."""

    def _rows(self) -> list[dict[str, object]]:
        return [
            {"network_address": name, "host": name, "cpuset": cpu, "core": 3 * at + cpu, "cpu": 3 * at + cpu,
             "switch": "sw1"}
            for at, name in enumerate(self.nodes) for cpu in range(3)
        ]  # fmt: skip


@pytest.fixture(scope="module")
def live() -> Iterator[Cluster]:
    """An instance for the tests of this module."""
    with site(kind=Cluster, nodes=12) as made:
        program = made.home / "test.sh"
        program.write_text("#!/bin/sh\necho oops >&2\nuniq $OAR_NODEFILE\n")
        program.chmod(0o755)
        yield made


@pytest.fixture(scope="module")
def lines() -> dict[str, list[str]]:
    """The words of each example."""
    typed = f"{SUBMITTED}{LISTED}{DELETED}{ADMINISTERED}".strip().splitlines()
    return {line: shlex.split(line) for line in typed if line}


def job_of(ran: Ran) -> int:
    """Return the number of the job that a command submitted."""
    assert ran.code == 0, ran
    return int(re.findall(r"^OAR_JOB_ID=(\d+)$", ran.out, re.MULTILINE)[0])


@needs_manual
def test_the_examples_are_those_that_the_manual_prints(lines: dict[str, list[str]]):
    printed = re.sub(r" \\\n *", " ", MANUAL[0].read_text())
    assert [line for line in lines if line not in printed] == []


@needs_root
@pytest.mark.manual(1, 10, 12, 13, 27, 28, 35, 36, 44, 45)
def test_jobs_are_submitted_as_the_manual_prints_it(live: Cluster, lines: dict[str, list[str]]):
    plain, named, large, dated, *_ = (lines[line] for line in SUBMITTED.strip().splitlines())
    first, second = (job_of(live.run("alice", *words)) for words in (plain, named))
    live.run("root", "oarnotify", "-d", "default")
    third = job_of(live.run("alice", *large))
    told = live.run("alice", "oarstat", "-fj", str(third)).out
    assert """-l "{type = 'default'}/network_address=10/cpu=3,walltime=2:15:0\"""" in told
    assert "switch = 'sw1'" in told
    assert "R=30,W=2:15:0" in told
    live.run("alice", "oardel", str(third))
    live.run("root", "oarnotify", "-e", "default")
    nowhere = live.run("alice", *(word.replace("default", "nowhere") for word in large))
    assert (nowhere.code, nowhere.out, nowhere.err.splitlines()[0]) == (248, "", "oarsub: There is no queue `nowhere`.")
    late = live.run("alice", *dated)
    assert (late.code, late.out) == (10, "")
    assert late.err.startswith("oarsub: The reservation would begin at 2009-04-27 11:00:00 and be over by now.\n")
    kept = live.run("alice", *(word.replace("2009", "2099") for word in dated))
    assert kept.out.splitlines()[-1] == "Reservation valid --> OK", kept
    assert "R=24" in live.run("alice", "oarstat", "-fj", str(job_of(kept))).out
    live.run("alice", "oardel", str(job_of(kept)))
    for job, stdout, stderr in (
        (first, f"OAR.{first}.stdout", f"OAR.{first}.stderr"),
        (second, f"test12.{second}.stdout", f"test12.{second}.stderr"),
    ):
        live.until_state(job, S.TERMINATED)
        assert len(set((live.home / stdout).read_text().split())) == 4
        assert (live.home / stderr).read_text() == "oops\n"


@needs_root
@pytest.mark.manual(2, 3, 31, 46, 50, 51, 52, 53, 55, 56, 57, 58, 59, 60, 61, 63, 65, 66, 67)
def test_jobs_are_entered_listed_held_and_deleted_as_the_manual_prints_it(live: Cluster, lines: dict[str, list[str]]):
    signalled = live.home / "signalled"
    loop = f"trap 'touch {signalled}' USR2; while :; do sleep 0.05; done"
    asked = ("--checkpoint", "5", "--project", "p1", "-l", "/cpu=1,walltime=0:10:0", loop)
    ours = {
        "42": str(job_of(live.run("alice", "oarsub", *asked))),
        "14": str(job_of(live.run("alice", "oarsub", *asked))),
    }

    def typed(line: str, *, stdin: str = "") -> Ran:
        return live.run("alice", *(ours.get(word, word) for word in lines[line]), stdin=stdin)

    for job in ours.values():
        live.until_state(int(job), S.RUNNING)
    shell = typed("oarsub -C 42", stdin="echo $OAR_JOB_ID $OAR_PROJECT_NAME\n")
    assert (shell.code, f"{ours['42']} p1" in shell.out) == (0, True), shell
    alone = typed("oarsub -I", stdin="hostname; wc -l < $OAR_NODEFILE\n")
    assert (alone.code, alone.out.splitlines()[-1]) == (0, f"Disconnected from OAR job {job_of(alone)}."), alone
    live.until_state(job_of(alone), S.TERMINATED)
    assert {line.split()[0] for line in typed("oarstat").out.splitlines()[2:]} == set(ours.values())
    assert f"Job_Id: {ours['42']}" in typed("oarstat -j 42 -f").out
    assert {line.split()[0] for line in typed("oarstat --sql \"project = 'p1'\"").out.splitlines()[2:]} == set(
        ours.values()
    )
    xml, perl, yaml = (live.run("alice", "oarstat", "-fj", ours["42"], form).out for form in ("-X", "-D", "-Y"))
    assert ET.fromstring(xml).find(f".//item[@key='{ours['42']}']/hashref/item[@key='project']").text == "p1"
    assert f"'{ours['42']}' => {{" in perl
    assert "'project' => 'p1'" in perl
    assert f"{ours['42']}:" in yaml
    assert "  project: p1\n" in yaml
    assert typed("oarnodes").out.count("network_address : ") == 36
    assert len(re.findall(r"^ +\d+ : Alive$", typed("oarnodes -s").out, re.MULTILINE)) == 36
    assert typed("oarnodes --sql \"state = 'Suspected'\"") == Ran(0, "", "")
    assert typed("oardel -c 42").code == 0
    live.until(signalled.exists)
    live.run("root", "oarnotify", "-d", "default")
    waiting = job_of(live.run("alice", "oarsub", *asked))
    only = "project = 'p1' and state = 'Waiting'"
    assert live.run("alice", "oarhold", "--sql", only).out == f"[{waiting}] Hold request was sent to the OAR server.\n"
    assert live.job(waiting).state is S.HOLD
    assert live.run("alice", "oarresume", "--sql", "project = 'p1' and state = 'Hold'").code == 0
    assert live.job(waiting).state is S.WAITING
    deleted = typed("oardel 14 42")
    assert f"The job(s) [ {ours['14']} {ours['42']} ] will be deleted in the near future." in deleted.out, deleted
    assert live.run("alice", "oardel", "--sql", "project = 'p1' and state = 'Waiting'").code == 0
    live.run("root", "oarnotify", "-e", "default")
    live.until(live.all_over)


@needs_root
@pytest.mark.manual(69, 70, 71, 72, 73, 77, 78, 79, 80, 81, 82, 83)
def test_a_cluster_is_administered_as_the_manual_prints_it(live: Cluster, lines: dict[str, list[str]]):
    told = [live.run("root", *lines[line]) for line in ADMINISTERED.strip().splitlines()]
    assert told[0] == Ran(0, "Added property: cpu_freq\n", "")
    assert told[1].code == 1
    assert told[1].err.startswith("oarproperty: `type`"), told[1]
    assert (told[2].code, told[2].err) == (0, "")
    assert (told[3].code, told[3].err) == (0, "")
    assert "freq" in live.run("root", "oarproperty", "-l").out.split()
    live.run("root", "oarproperty", "-d", "freq")
    for words in (["-a", "-h", live.nodes[0], "-p", "cpu=99"], ["--sql", "cpu = 99", "-s", "Dead"]):
        assert live.run("root", "oarnodesetting", *words).code == 0
    [number] = re.findall(r"resource_id = (\d+)", live.run("root", "oarnodes", "--sql", "cpu = 99").out) or ["37"]
    live.until(lambda: "Dead" in live.run("root", "oarnodes", "-s", "-r", number).out)
    assert live.run("root", "oarremoveresource", number).code == 0
    queue = ("--add_queue", "name,3,oar_sched_gantt_with_timesharing")
    assert live.run("root", "oarnotify", *queue) == Ran(0, "Add queue name.\n", "")
    assert "name" in live.run("root", "oarnotify", "-l").out
    for words in (["-d", "name"], ["-e", "name"], ["-D"], ["-E"], ["--remove_queue", "name"], []):
        assert live.run("root", "oarnotify", *words).code == 0, words


@needs_root
@pytest.mark.manual(78, 79)
def test_accounts_are_made_again_from_what_is_done_to_the_tables_by_hand(live: Cluster):
    job_of(live.run("alice", "oarsub", "--project", "again", "-l", "/cpu=1,walltime=0:1:0", "sleep 1.1"))
    live.until(live.all_over)
    live.run("root", "oaraccounting")
    with live.database.read() as tx:
        before = accounting.listed(tx)
    by_hand = sqlite3.connect(live.state / "oarlock.db", timeout=20)
    by_hand.execute("DELETE FROM accounting;")
    by_hand.execute('UPDATE jobs SET accounted = "NO";')
    by_hand.commit()
    by_hand.close()
    assert live.run("root", "oaraccounting").code == 0
    with live.database.read() as tx:
        assert accounting.listed(tx) == before != []


@needs_manual
@pytest.mark.manual(
    155, 156, 157, 158, 159, 160, 161, 162, 163, 164, 165, 166, 167, 168, 169, 170, 172, 173, 174, 175, 176, 177
)
def test_every_setting_that_the_manual_prints_is_read(tmp_path: Path):
    text = MANUAL[0].read_text()
    text = text[text.index("\nConfiguration file\n") : text.index("\nModule descriptions\n")]
    printed = re.findall(r"^ +([A-Z_]+=.*)$", text, re.MULTILINE)
    assert len(printed) > 60
    settings = tmp_path / "oar.conf"
    settings.write_text("".join(f"{line}\n" for line in printed if not line.startswith("DB_")))
    settings.chmod(0o600)
    loaded = load(settings)
    assert loaded.config.server_port == 6666
