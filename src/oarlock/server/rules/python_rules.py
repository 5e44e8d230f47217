"""Python admission rules: trusted files of the administrator, each run in a process of its own, within limits.

This isolates the server from mistakes in a rule. It is not a sandbox: whoever writes a rule administers anyway.
"""

import asyncio
import contextlib
import json
import os
import signal
import stat
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from oarlock.job.admission.admit import RuleResult
from oarlock.model.submission_errors import RuleFailed, RuleNotTrusted
from oarlock.node.attempt.site_script import suggest_fix

SECONDS = 2.0
ANSWER_BYTES = 1024 * 1024
PROGRAM = Path(__file__).with_name("rule_program.py")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}
_ROOT = 0


async def run(
    path: Path, submission: Mapping[str, Any], *, top: Path = Path("/"), seconds: float = SECONDS
) -> RuleResult:
    """Run a rule on a job; raise an error if it is not trusted, fails or takes too long.

    `top` is trusted as it is; every folder below it down to the file is looked at.
    """
    await asyncio.to_thread(check_trust, path, top=top)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", "-B", str(PROGRAM), str(path),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env=_ENVIRONMENT, cwd="/", close_fds=True, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(seconds):
            answer = await _talk(process, json.dumps(submission).encode())
            code = await process.wait()
    except TimeoutError:
        raise RuleFailed(f"it did not answer within {seconds:g} s.") from None
    finally:
        await _end(process)
    return _ruling(answer, code)


def check_trust(path: Path, *, top: Path = Path("/"), owners: Collection[int] | None = None) -> None:
    """Refuse a file that somebody besides root and the server's own user could change or replace."""
    trusted = {_ROOT, os.geteuid()} if owners is None else owners
    if not path.is_absolute() or ".." in path.parts or not path.is_relative_to(top):
        raise RuleNotTrusted(f"{path} is not a whole path below {top}.", hint="Name it from `/` on, without `..`.")
    for part in (path, *path.parents):
        if part == top and top != Path("/"):
            break
        _check_part(part, trusted, last=part == path)


def _check_part(part: Path, trusted: Collection[int], *, last: bool) -> None:
    try:
        status = part.lstat()
    except OSError as problem:
        raise RuleNotTrusted(f"{part} cannot be looked at: {problem.strerror}.") from problem
    if not (stat.S_ISREG if last else stat.S_ISDIR)(status.st_mode):
        raise RuleNotTrusted(f"{part} is not a plain {'file' if last else 'folder'}.", hint="Links are not followed.")
    if status.st_uid not in trusted:
        raise RuleNotTrusted(f"{part} belongs to user {status.st_uid}.", hint=f"chown root {part}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RuleNotTrusted(f"{part} can be written by others.", hint=suggest_fix(str(part), status).strip("`"))


async def _talk(process: asyncio.subprocess.Process, question: bytes) -> bytes:
    """Send the request, and read an answer of bounded length; the program reads all of its input first."""
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        raise RuleFailed("it has no pipes.")
    with contextlib.suppress(ConnectionError):  # it ended early: its exit code has the reason
        stdin.write(question)
        await stdin.drain()
    stdin.close()
    answer = b""
    while part := await stdout.read(65536):
        answer += part
        if len(answer) > ANSWER_BYTES:
            raise RuleFailed(f"its answer is longer than {ANSWER_BYTES} bytes.")
    return answer


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill the session of the rule, with all that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


def _ruling(answer: bytes, code: int) -> RuleResult:
    if code != 0:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with {code}"
        raise RuleFailed(f"it {how} before it answered.")
    try:
        decoded = json.loads(answer)
        job, reject, error = decoded["job"], decoded["reject"], decoded["error"]
        messages = tuple(map(str, decoded["messages"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RuleFailed("its answer cannot be read.") from None
    if error:
        raise RuleFailed(f"{error}.")
    if (job is None) == (reject is None) or not isinstance(job, dict | None) or not isinstance(reject, str | None):
        raise RuleFailed("it answers neither with the job nor with why it is refused.")
    return RuleResult(job, reject, messages)
