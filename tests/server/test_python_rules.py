"""Python rules run in a process of their own, within limits; whatever goes wrong in one refuses the job."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from oarlock.job.admission.admit import RuleResult
from oarlock.model.submission_errors import RuleFailed, RuleNotTrusted
from oarlock.server.rules.python_rules import check_trust, run

ASKED = {"job": {"queue": None, "name": "n"}, "context": {"user": "ada"}}


@pytest.fixture
def ruled(tmp_path: Path):
    tmp_path.chmod(0o755)

    def ask(text: str, **limits) -> RuleResult:
        (tmp_path / "rule.py").write_text(text)
        return asyncio.run(run(tmp_path / "rule.py", ASKED, top=tmp_path, **limits))

    return ask


def test_a_rule_changes_the_job_it_was_given(ruled):
    assert ruled("def admit(job, context):\n    job['queue'] = context['user']\n    print('for', context['user'])") == (
        RuleResult({"queue": "ada", "name": "n"}, None, ("for ada",))
    )


def test_a_rule_may_answer_with_another_job(ruled):
    assert ruled("def admit(job, context): return {'name': 'm'}") == RuleResult({"name": "m"})


def test_a_rule_refuses_with_a_sentence(ruled):
    assert ruled("def admit(job, context):\n    print('hm')\n    refuse(f'no, {job[\"name\"]}')") == (
        RuleResult(None, "no, n", ("hm",))
    )


FAILS = {
    "def admit(job, context):\n    x = 1\n    return x / 0": r"ZeroDivisionError: division by zero \(line 3\)",
    "def admit(job, context) return job": "SyntaxError",
    "def admitted(job): pass": "KeyError: 'admit'",
    "def admit(job, context): raise SystemExit(3)": "SystemExit: 3",
    "import os\ndef admit(job, context): os._exit(3)": "ended with 3 before it answered",
    "import os, signal\ndef admit(job, context): os.kill(os.getpid(), 9)": "was ended by signal 9",
    "def admit(job, context): return 7": "answers neither",
    "def admit(job, context): return {1, 2}": "ended with 1",
    "import os\ndef admit(job, context):\n    os.write(1, b'garbage')": "cannot be read",
    "import os\ndef admit(job, context):\n    while True: os.write(1, b'x' * 65536)": "longer than 1048576 bytes",
    "def admit(job, context): return bytearray(300 << 20)": "MemoryError",
    "def admit(job, context): print('x' * 2000000)": "longer than 1048576 bytes",
}


@pytest.mark.parametrize("text", FAILS, ids=range(len(FAILS)))
def test_a_rule_that_fails_is_told(ruled, text):
    with pytest.raises(RuleFailed, match=FAILS[text]):
        ruled(text)


def test_a_rule_that_computes_for_ever_is_ended_by_its_own_limit(ruled):
    before = time.monotonic()
    with pytest.raises(RuleFailed, match=r"ended by signal|did not answer"):
        ruled("def admit(job, context):\n    while True: pass", seconds=30)
    assert time.monotonic() - before < 20


def test_a_rule_that_waits_for_ever_is_ended_with_all_it_started(ruled, tmp_path: Path):
    text = (
        "import os, time\n"
        "def admit(job, context):\n"
        f"    child = os.fork()\n    if child: open({str(tmp_path / 'child')!r}, 'w').write(str(child))\n"
        "    time.sleep(600)\n"
    )
    with pytest.raises(RuleFailed, match=r"did not answer within 0\.5 s"):
        ruled(text, seconds=0.5)
    child = int((tmp_path / "child").read_text())
    give_up_at = time.monotonic() + 10
    while alive(child) and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert not alive(child)


def alive(pid: int) -> bool:
    """Say whether a process runs; one that ended and was not collected by its new parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_rule_inherits_nothing(ruled, monkeypatch):
    monkeypatch.setenv("SECRET", "s")
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        answer = ruled(
            "import os, resource\n"
            "def admit(job, context):\n"
            "    return {'env': dict(os.environ), 'fds': sorted(os.listdir('/proc/self/fd'), key=int)[:-1],\n"
            "            'cwd': os.getcwd(), 'cpu': resource.getrlimit(resource.RLIMIT_CPU),\n"
            "            'memory': resource.getrlimit(resource.RLIMIT_AS)}"
        ).job
    finally:
        os.close(reader)
        os.close(writer)
    answer["env"].pop("LC_CTYPE", None)
    assert answer == {
        "env": {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}, "fds": ["0", "1", "2"], "cwd": "/", "cpu": [1, 1],
        "memory": [256 << 20, 256 << 20],
    }  # fmt: skip


def test_other_work_goes_on_while_a_rule_runs(tmp_path: Path):
    tmp_path.chmod(0o755)
    (tmp_path / "slow.py").write_text("import time\ndef admit(job, context): time.sleep(0.5)")

    async def both() -> int:
        turns = 0
        asking = asyncio.create_task(run(tmp_path / "slow.py", ASKED, top=tmp_path))
        while not asking.done():
            await asyncio.sleep(0.01)
            turns += 1
        await asking
        return turns

    assert asyncio.run(both()) > 10


@pytest.fixture
def rule_file(tmp_path: Path) -> Path:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True, mode=0o755)
    for part in (tmp_path, tmp_path / "a", folder):
        part.chmod(0o755)
    (folder / "rule.py").touch(0o644)
    return folder / "rule.py"


def test_a_file_that_only_the_administrator_can_write_is_trusted(rule_file: Path, tmp_path: Path):
    check_trust(rule_file, top=tmp_path)


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
@pytest.mark.parametrize("part", ["a", "a/b", "a/b/rule.py"])
def test_a_part_that_others_can_write_is_not(rule_file: Path, tmp_path: Path, part: str, mode: int):
    (tmp_path / part).chmod(mode)
    with pytest.raises(RuleNotTrusted, match=f"{part} can be written by others"):
        check_trust(rule_file, top=tmp_path)


def test_a_part_of_somebody_else_is_not(rule_file: Path, tmp_path: Path):
    with pytest.raises(RuleNotTrusted, match=r"rule\.py belongs to user"):
        check_trust(rule_file, top=tmp_path, owners={os.geteuid() + 1})


def test_links_and_detours_are_not_followed(rule_file: Path, tmp_path: Path):
    (tmp_path / "link.py").symlink_to(rule_file)
    (tmp_path / "folder").symlink_to(rule_file.parent)
    for path in (
        tmp_path / "link.py",
        tmp_path / "folder" / "rule.py",
        tmp_path / "a" / ".." / "a" / "b" / "rule.py",
        tmp_path / "a",
        tmp_path / "none.py",
        Path("/etc/passwd"),
        Path("rule.py"),
    ):
        with pytest.raises(RuleNotTrusted):
            check_trust(path, top=tmp_path)


def test_everything_from_the_root_on_is_looked_at(tmp_path: Path):
    (tmp_path / "rule.py").touch(0o644)
    parents = [part for part in tmp_path.parents if part.stat().st_mode & 0o022]
    if not parents:
        pytest.skip("every folder above the temporary one is closed to others")
    with pytest.raises(RuleNotTrusted, match="can be written by others"):
        check_trust(tmp_path / "rule.py", owners={os.geteuid(), *(part.stat().st_uid for part in tmp_path.parents)})


def test_a_rule_that_is_not_trusted_is_never_started(tmp_path: Path):
    tmp_path.chmod(0o755)
    rule = tmp_path / "rule.py"
    rule.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef admit(job, context): pass")
    rule.chmod(0o666)
    with pytest.raises(RuleNotTrusted):
        asyncio.run(run(rule, ASKED, top=tmp_path))
    assert not (tmp_path / "ran").exists()
