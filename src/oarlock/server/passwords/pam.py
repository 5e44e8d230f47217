"""Ask PAM whether a password is that of a user; in a process of its own, since modules of PAM may hang or crash."""

import asyncio
import contextlib
import json
import logging
import sys
from pathlib import Path

from oarlock.web.passwords import PasswordUnchecked

log = logging.getLogger(__name__)

SECONDS = 20.0
"""How long PAM may take: it pauses for some seconds after a wrong password."""

_AT_ONCE = 4
_PROGRAM = Path(__file__).with_name("pam_program.py")
_RIGHT, _WRONG = 0, 1


class PamCheck:
    """Checks passwords by a service of PAM, a few at once."""

    def __init__(self, service: str) -> None:
        self._service, self._slots = service, asyncio.Semaphore(_AT_ONCE)

    async def __call__(self, user: str, password: str) -> bool:
        """Return whether the password is right; `PasswordUnchecked` where PAM cannot be asked."""
        question = json.dumps({"service": self._service, "user": user, "password": password}).encode()
        async with self._slots:
            status, says = await _ask(question)
        if status not in {_RIGHT, _WRONG}:
            log.warning("PAM cannot be asked", extra={"service": self._service, "why": says})
            raise PasswordUnchecked
        return status == _RIGHT


async def _ask(question: bytes) -> tuple[int, str]:
    """Run the program with the question on its standard input; return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-B", str(_PROGRAM),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}, cwd="/", start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(SECONDS):
            out, _ = await process.communicate(question)
        return process.returncode or 0, out.decode(errors="replace").strip()[:200]
    except TimeoutError:
        return -1, f"no answer within {SECONDS:g} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
