"""What cannot be meant is refused by every command in one sentence with a way out, and nothing is left of it."""

import re
import shlex
from collections.abc import Iterator

import pytest

from oarlock.client_connection import CONNECT_SECONDS
from oarlock.model.job import JobState
from tests.bed import needs_root
from tests.golden.live import Ran, Site, site

pytestmark = needs_root

LARGE = "9" * (1 << 20)
NOT_UTF8 = "\udcff\udcfe"
OF_JOBS = ("oardel", "oarhold", "oarresume", "oarwalltime")
ADMINISTER = {
    "oarnodesetting": "-r 1 -p mem=1", "oarproperty": "-a nosuch", "oarremoveresource": "1", "oaraccounting": "",
    "oarnotify": "-E", "oaradmissionrules": "-S", "oarmonitor": "-j {mine} -f 10",
}  # fmt: skip
"""What only administrators may do, one example a command."""

CASES = {
    "no argument": [
        *OF_JOBS, "oarsub", "oarnodesetting", "oarproperty", "oarremoveresource", "oarsh", "oarcp", "oarmonitor",
        "oarmonitor_graph_gen", "oaradmissionrules",
    ],
    "an unknown job": [
        *(f"{command} 999999" for command in OF_JOBS), "oarsub -C 999999", "oarsub --resubmit 999999",
        "oarsub -a 999999 true", "oarstat --why 999999", "oarmonitor_graph_gen -j 999999",
    ],
    "the job of somebody else": [
        *(f"{command} {{other}}" for command in OF_JOBS[:3]), "oarwalltime {other} +0:1", "oarsub -C {other}",
        "oarsub --resubmit {other}", "oarmonitor_graph_gen -j {other}",
    ],
    "a job that is over": ["oarhold {over}", "oarresume {over}", "oarwalltime {over} +0:1", "oarsub -C {over}"],
    "a number that is none": [
        *(f"{command} abc" for command in OF_JOBS), "oarsub -C abc", "oarsub --resubmit abc", "oarsub -a abc true",
        "oarsub --array abc true", "oarsub --checkpoint abc true", "oarstat -j abc", "oarstat --why abc",
        "oarnodes -r abc", "oarsub -l core=abc true", "oarmonitor_graph_gen -j abc",
    ],
    "a negative number": [
        *(f"{command} -- -5" for command in OF_JOBS[:3]), "oarsub --resubmit -5", "oarsub --array -5 true",
        "oarsub -l core=-5 true", "oarsub --checkpoint -5 true",
    ],
    "an empty text": [
        *(f"{command} ''" for command in OF_JOBS), "oarsub ''", "oarsub -q '' true", "oarsub -r '' true",
        "oarsub --notify '' true", "oarsub -t '' true", "oarstat --sql ''", "oarnodes --sql ''", "oarsub -S ''",
        "oarsub -s '' true", "oarsub -l '' true",
    ],
    "bytes that are no text": [
        *(f"{command} {{bytes}}" for command in OF_JOBS), "oarsub -n {bytes} true", "oarsub -q {bytes} true",
        "oarsub -p {bytes} true", "oarsub -l {bytes} true", "oarstat --sql {bytes}", "oarnodes --sql {bytes}",
        "oarsub {bytes}", "oarsub -d {bytes} true", "oarsub --project {bytes} true",
    ],
    "a megabyte": [
        *(f"{command} {{large}}" for command in OF_JOBS), "oarsub -n {large} true", "oarsub -l core={large} true",
        "oarsub -p 'core = {large}' true", "oarsub -q {large} true", "oarstat --sql 'job_id = {large}'",
        "oarstat -j {large}", "oarsub -t {large} true", "oarsub -r {large} true", "oarsub --notify mail:{large} true",
        "oarsub -d /{large} true",
    ],
    "a link that leads nowhere": [
        "oarsub -S /dev/zero", "oarsub --array-param-file /dev/zero true", "oarsub -S ./nowhere",
        "oarsub --array-param-file nowhere true", "oarprint -f nowhere core",
        "oarsub -s nowhere true",
    ],
    "a file that may not be read": [
        "oarsub -S ./closed", "oarsub --array-param-file closed true", "oarprint -f closed core",
        "oarsub -s closed true",
    ],
    "an administrator's command": [f"{command} {words}".strip() for command, words in ADMINISTER.items()],
}  # fmt: skip
"""Commands of an ordinary user by what is wrong with them."""

OF_ADMINISTRATORS = [
    "oarnodesetting -r abc -p mem=1", "oarnodesetting -r 1 -p mem=abc", "oarnodesetting -r 1 -p ''",
    "oarnodesetting -r 1 -s ''",
    "oarnodesetting -h '' -s Dead", "oarnodesetting -r 1 -s {bytes}", "oarnodesetting -r {large} -s Dead",
    "oarnodesetting --sql '' -p mem=1", "oarproperty -a ''", "oarproperty -a {bytes}", "oarproperty -a {large}",
    "oarproperty -r ''", "oarproperty -d ''", "oarremoveresource abc", "oarremoveresource ''",
    "oarremoveresource {large}",
    "oaraccounting --delete-before abc", "oaraccounting --delete-before -5", "oaraccounting word", "oarnotify ''",
    "oarnotify {bytes}", "oarnotify {large}", "oarnotify -e ''", "oarnotify --add-queue ''",
    "oarnotify --add-queue {bytes},1",
    "oarnotify --add-queue ab,abc", "oarnotify --change-queue ''", "oarnotify --remove-queue ''",
    "oaradmissionrules -n",
    "oaradmissionrules -n -r nowhere", "oaradmissionrules -d 999999", "oaradmissionrules -m abc -Y",
    "oarmonitor -j abc -f 10",
    "oarmonitor -j 999999 -f 10", "oarmonitor -j {mine} -f 0", "oarmonitor -j {mine} -f -5",
]  # fmt: skip
"""What administrators may type and cannot mean."""

INTERNAL = re.compile(r"\$\.|\^\[|regex|Traceback|UnicodeEncode|surrogate|\b(jobs|accounting|resources|queues)\.\w")


@pytest.fixture(scope="module")
def live() -> Iterator[Site]:
    """An instance with a job of alice, one of bob, and one that is over."""
    with site() as made:
        (made.home / "nowhere").symlink_to("/nowhere/at/all")
        (made.home / "closed").write_text("#OAR -n x\n")
        (made.home / "closed").chmod(0o600)
        yield made


@pytest.fixture(scope="module")
def numbers(live: Site) -> dict[str, str]:
    """The jobs, and texts that no shell would like to type."""

    def submitted(user: str, *words: str) -> str:
        return live.run(user, "oarsub", *words).out.rpartition("OAR_JOB_ID=")[2].strip()

    found = {"mine": submitted("alice", "-l", "core=1,walltime=1", "sleep 600"), "large": LARGE, "bytes": NOT_UTF8}
    found |= {"other": submitted("bob", "-l", "core=1,walltime=1", "sleep 600")}
    found |= {"over": submitted("alice", "-l", "core=1,walltime=1", "true")}
    live.until_state(int(found["over"]), JobState.TERMINATED)
    for name in ("mine", "other"):
        live.until_state(int(found[name]), JobState.RUNNING)
    return found


def typed(live: Site, user: str, line: str, numbers: dict[str, str], **variables: str) -> Ran:
    """Run a line in which names stand for jobs and texts."""
    words = [re.sub(r"\{(\w+)\}", lambda name: numbers[name[1]], word) for word in shlex.split(line)]
    return live.run(user, *words, **variables)


def everything(live: Site) -> tuple[str, ...]:
    """Return what a command could have changed: jobs, resources, properties, queues, rules, files."""
    listings = (
        "oarstat -s --sql 'job_id > 0'",
        "oarnodes -J",
        "oarproperty -l",
        "oarnotify -l",
        "oaradmissionrules -S",
    )
    told = tuple(live.run("root", *shlex.split(line)).out for line in listings)
    return *told, " ".join(sorted(path.name for path in live.home.iterdir()))


def wrong(line: str, ran: Ran) -> str:
    """Return what is wrong with how a command refused; nothing where it is as it should be."""
    command = line.partition(" ")[0]
    if ran.code in (0, 99):
        return f"ended with {ran.code}: {ran.out[:200]}{ran.err[-600:]}"
    if not ran.err.startswith(f"{command}: ") or len(ran.err) > 1500:
        return f"is not a sentence of {command}: {ran.err[:300]} ({len(ran.err)} letters)"
    if not 2 <= len(ran.err.strip().splitlines()) <= 4:
        return f"has no way out, or too many: {ran.err[:400]}"
    return f"internal: {found[0]}" if (found := INTERNAL.findall(ran.err)) else ""


@pytest.mark.parametrize("kind", CASES)
def test_a_user_s_bad_input_is_a_sentence_with_a_way_out(live: Site, numbers: dict[str, str], kind: str):
    before = everything(live)
    problems = {line: text for line in CASES[kind] if (text := wrong(line, typed(live, "alice", line, numbers)))}
    assert not problems, "\n".join(f"$ {line}: {text}" for line, text in problems.items())
    assert everything(live) == before


def test_an_administrator_s_bad_input_is_a_sentence_with_a_way_out(live: Site, numbers: dict[str, str]):
    before = everything(live)
    problems = {line: text for line in OF_ADMINISTRATORS if (text := wrong(line, typed(live, "root", line, numbers)))}
    assert not problems, "\n".join(f"$ {line}: {text}" for line, text in problems.items())
    assert everything(live) == before


WITHOUT_A_SERVER = [
    "oarsub true", "oarsub -I", "oarsub -C {mine}", "oarstat", "oarstat -j {mine}", "oardel {mine}", "oarhold {mine}",
    "oarresume {mine}", "oarwalltime {mine}", "oarnodes", "oarnodesetting -r 1 -s Dead", "oarproperty -l",
    "oarremoveresource 1", "oaraccounting", "oarnotify", "oaradmissionrules -S", "oarmonitor -j {mine} -f 10",
    "oarmonitor_graph_gen -j {mine}",
]  # fmt: skip


def test_without_a_server_every_command_says_so_and_where_it_looked(live: Site, numbers: dict[str, str]):
    """A socket that nobody listens at any more is waited for, but not for long: a server may be starting."""
    assert CONNECT_SECONDS <= 2.5
    problems = {}
    for line in WITHOUT_A_SERVER:
        ran = typed(live, "alice", line, numbers, OARLOCK_SERVER="/nowhere/server.sock")
        if (text := wrong(line, ran)) or "/nowhere/server.sock" not in ran.err:
            problems[line] = text or ran.err
    assert not problems, "\n".join(f"$ {line}: {text}" for line, text in problems.items())
