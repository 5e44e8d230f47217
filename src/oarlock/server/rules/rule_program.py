"""The process of one Python rule: reads a job on standard input, asks the rule, writes its answer.

Run by itself (`python3 -I -S rule_program.py RULE`), never imported by the server. A rule is a file with

    def admit(job, context): ...

that changes the dictionary `job` or gives another; `refuse("why")` does not let it in, `print` speaks to the user.
"""

import contextlib
import io
import json
import resource
import runpy
import sys
import traceback
from typing import Any, NoReturn

CPU_SECONDS = 1
MEMORY_BYTES = 256 * 1024 * 1024


class RuleRejected(Exception):
    """The rule does not let the job in."""


def refuse(why: object) -> NoReturn:
    """Refuse the job."""
    raise RuleRejected(str(why))


def limit() -> None:
    """Bound what the rule may use, before anything of it is read."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def answer(path: str, question: dict[str, Any]) -> dict[str, Any]:
    """Run the rule; report an exception in it with its line."""
    result: dict[str, Any] = {"job": None, "reject": None, "error": None, "messages": []}
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            rule = runpy.run_path(path, {"refuse": refuse})["admit"]
            changed = rule(question["job"], question["context"])
        result["job"] = question["job"] if changed is None else changed
    except RuleRejected as refused:
        result["reject"] = str(refused)
    except BaseException as problem:  # noqa: BLE001  (a rule may fail in any way; all of them refuse the job)
        lines = [frame.lineno for frame in traceback.extract_tb(problem.__traceback__) if frame.filename == path]
        result["error"] = f"{type(problem).__name__}: {problem}" + (f" (line {lines[-1]})" if lines else "")
    result["messages"] = printed.getvalue().splitlines()
    return result


def main() -> None:
    """Read a request, run the rule, write the answer."""
    limit()
    question = json.load(sys.stdin)
    json.dump(answer(sys.argv[1], question), sys.stdout)


if __name__ == "__main__":
    main()
