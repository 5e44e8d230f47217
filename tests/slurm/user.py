"""A user of Slurm at a terminal: types what the cases say, waits for the ends of the jobs, tells what came of it.

A program of its own, since a user's jobs are not root's: it reads cases from standard input and writes facts, both
JSON. With the word `slurm` it runs the commands in PATH; otherwise ours, each in a fork with everything imported.
"""

import contextlib
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE = 110.0
OURS = ("sacct", "sbatch", "scancel", "scontrol", "squeue")
Fact = dict[str, Any]


class Terminal:
    """Where commands are typed."""

    def __init__(self, ours: bool) -> None:
        self.is_ours = ours
        self._mains = {name: importlib.import_module(f"oarlock.cli.slurm.{name}").main for name in OURS if ours}
        if ours:  # what commands import late
            for name in ("slurm.request", "submitting.submission", "layout.readable"):
                importlib.import_module(f"oarlock.cli.{name}")

    def run(self, words: list[str], folder: Path, stdin: str = "", **environment: str) -> tuple[int, str, str]:
        """Run a command; return its exit code and what it printed."""
        if words[0] not in self._mains:
            ran = subprocess.run(words, cwd=folder, input=stdin, capture_output=True, text=True, check=False,
                                 timeout=60, env={**os.environ, **environment})  # fmt: skip
            return ran.returncode, ran.stdout, ran.stderr
        files = [os.memfd_create(name) for name in ("in", "out", "err")]
        os.write(files[0], stdin.encode())
        os.lseek(files[0], 0, os.SEEK_SET)
        child = os.fork()
        if child == 0:
            self._be(words, folder, files, environment)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        printed = []
        for fd in files[1:]:
            os.lseek(fd, 0, os.SEEK_SET)
            with os.fdopen(fd) as file:
                printed.append(file.read())
        os.close(files[0])
        return code, printed[0], printed[1]

    def _be(self, words: list[str], folder: Path, files: list[int], environment: dict[str, str]) -> None:
        code = 99
        try:
            for number, fd in enumerate(files):
                os.dup2(fd, number)
            os.chdir(folder)
            os.environ.update(environment)
            sys.argv = words
            code = self._mains[words[0]]()
        finally:
            os._exit(code)


def type_lines(terminal: Terminal, case: dict[str, Any], folder: Path) -> Fact:
    """Do what a case says; return what was printed and the numbers of its jobs."""
    typed, numbers = [], [""]
    for line in case.get("type") or ["sbatch --parsable job.sh"]:
        for place, number in enumerate(numbers[1:], 1):
            line = line.replace(f"{{{place}}}", number)
        words = shlex.split(line)
        if terminal.is_ours and "refused" in case and words[0] in {"await", "until"}:
            continue
        if words[0] == "await":
            wait(lambda name=words[1]: (folder / name).exists(), line)
            continue
        if words[0] == "until":
            *words, _, text = words[1:]
            wait(lambda words=words, text=text: terminal.run(words, folder)[1].strip() == text, line)
            continue
        code, out, err = terminal.run(words, folder, case.get("stdin", ""), **case.get("environment", {}))
        typed.append([code, out, err])
        if words[0] == "sbatch":
            number = re.search(r"(\d+)\n?$", out)
            numbers.append(number[1] if number and code in {0, 5} else "0")
    return {"typed": typed, "numbers": numbers[1:]}


def wait(done: Any, what: str) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.1)


def states(terminal: Terminal, numbers: list[str]) -> dict[str, str]:
    """Return state and exit code of jobs, and of the tasks of arrays."""
    found = {}
    for number in numbers:
        for line in terminal.run(["scontrol", "show", "job", "-o", number], Path("/"))[1].splitlines():
            fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
            name = fields["JobId"]
            if "ArrayTaskId" in fields:
                name = f"{fields['ArrayJobId']}_{fields['ArrayTaskId']}"
            found[name] = f"{fields['JobState']} {fields['ExitCode']}"
    return found


def contents(folder: Path) -> dict[str, str]:
    """Return the files of a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes().decode()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".keep"
    }


def main() -> None:
    """Type all cases, wait for all jobs, and write what came of them."""
    ours, top = sys.argv[1] != "slurm", Path(sys.argv[2])
    terminal, cases, facts = Terminal(ours), json.load(sys.stdin), {}
    for case in cases:
        folder = top / case["name"]
        folder.mkdir()
        for name, text in {**({"job.sh": case["job"]} if "job" in case else {}), **case.get("files", {})}.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        facts[case["name"]] = type_lines(terminal, case, folder)
    try:
        wait(lambda: terminal.run(["squeue", "-h", "-o", "%i"], top)[1] == "", "squeue to be empty")
    except TimeoutError:
        raise TimeoutError(terminal.run(["squeue", "-o", "%i %j %T %r %Z"], top)[1]) from None
    for case in cases:
        fact = facts[case["name"]]
        numbers = [number for number in fact["numbers"] if number != "0"]
        fact["states"] = states(terminal, numbers) if numbers else {}
        fact["files"] = contents(top / case["name"])
        for name in {"job.sh", *case.get("files", {})}:
            given = case.get("files", {}).get(name, case.get("job"))
            if given is not None and fact["files"].get(name) == given:
                del fact["files"][name]
    json.dump(facts, sys.stdout)


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
