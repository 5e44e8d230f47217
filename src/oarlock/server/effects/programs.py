"""Programs of the site that run on the server: prologue, epilogue, node managers. No shell, and a deadline each."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from oarlock.config import Config
from oarlock.job.run import site_programs
from oarlock.job.run.site_programs import SiteProgram
from oarlock.model.event import EventType
from oarlock.node.attempt import site_script
from oarlock.settings.kinds import NodeTransport

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_LONGEST_MESSAGE = 500
_SECONDS_TO_DIE = 2.0
_MOST_PRINTED = 64 << 20  # bytes; a program that prints more is ended


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """How a program ended; `status` is None when it was out of time, -1 when it could not be started."""

    status: int | None
    says: str


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """How a program ended (as in `ProgramResult`), and its output; `err` is ours if it did not end by itself."""

    status: int | None
    out: str
    err: str


async def run(command: Sequence[str], *, seconds: float, lines: Sequence[str] = ()) -> ProgramResult:
    """Run a program with a constant environment and these lines on its standard input; end it when time is over."""
    output = await run_captured(command, seconds=seconds, lines=lines, out=asyncio.subprocess.DEVNULL)
    if output.status is None or output.status == -1:
        return ProgramResult(output.status, output.err)
    message = output.err.strip()[-_LONGEST_MESSAGE:]
    if output.status:
        message = f"{command[0]} ended with {described(output.status)}" + (f": {message}" if message else "")
    return ProgramResult(output.status, message)


def described(returncode: int) -> str:
    """Describe how a program ended that did not end well."""
    return f"exit {returncode}" if returncode > 0 else f"signal {-returncode}"


async def run_captured(
    command: Sequence[str], *, seconds: float, lines: Sequence[str] = (), out: int = asyncio.subprocess.PIPE
) -> ProgramOutput:
    """Run a program as `run` does, and return what it prints."""
    return await run_fed(command, "".join(f"{line}\n" for line in lines).encode(), seconds=seconds, out=out)


async def run_fed(
    command: Sequence[str], given: bytes, *, seconds: float, out: int = asyncio.subprocess.PIPE
) -> ProgramOutput:
    """Run a program with these bytes on its standard input, and return what it prints."""
    try:
        executable = await asyncio.to_thread(trusted_path, command[0])
        process = await asyncio.create_subprocess_exec(
            *command,
            executable=executable,
            stdin=asyncio.subprocess.PIPE,
            stdout=out,
            stderr=asyncio.subprocess.PIPE,
            env=_ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    except site_script.UntrustedScript as error:
        return ProgramOutput(-1, "", str(error))
    except OSError as error:
        return ProgramOutput(-1, "", f"{command[0]} cannot be run: {error.strerror}")
    try:
        async with asyncio.timeout(seconds):
            printed, complained = await _communicate(process, given)
    except TimeoutError:
        await _end(process)
        return ProgramOutput(None, "", f"{command[0]} did not end within {seconds:g} s")
    except _TooMuchPrinted:
        await _end(process)
        return ProgramOutput(-1, "", f"{command[0]} printed more than {_MOST_PRINTED >> 20} MiB")
    except asyncio.CancelledError:  # the server stops
        await _end(process)
        raise
    return ProgramOutput(
        process.returncode, (printed or b"").decode(errors="replace"), complained.decode(errors="replace")
    )


class _TooMuchPrinted(Exception):
    """A program whose output is not worth the memory."""


async def _communicate(process: asyncio.subprocess.Process, given: bytes) -> tuple[bytes, bytes]:
    """Feed a program, and return its output and what it complained of; both are bounded."""
    feeding = asyncio.ensure_future(_feed(process.stdin, given))
    reading = [asyncio.ensure_future(_read(stream)) for stream in (process.stdout, process.stderr)]
    try:
        printed, complained = await asyncio.gather(*reading)
    finally:  # not a TaskGroup: with Python 3.11.2 its failure spoils the next timeout of the same task
        for task in (feeding, *reading):
            task.cancel()
        await asyncio.wait([feeding, *reading])
    await process.wait()
    await _closed(process.stdin)
    return printed, complained


async def _feed(stream: asyncio.StreamWriter | None, given: bytes) -> None:
    if stream is None:
        return
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it need not read what it gets
        stream.write(given)
        await stream.drain()
    stream.close()


async def _closed(stream: asyncio.StreamWriter | None) -> None:
    """Wait until a program's input is closed: otherwise asyncio complains that nobody saw how."""
    if stream is not None:
        stream.close()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            await stream.wait_closed()


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    parts, size = [], 0
    while stream is not None and (part := await stream.read(1 << 16)):
        parts.append(part)
        size += len(part)
        if size > _MOST_PRINTED:
            raise _TooMuchPrinted
    return b"".join(parts)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a program with its process group, and wait for its end; not for long, since a child may have left the group.

    What it printed is read to its end: as long as a full pipe is not, asyncio does not see that the program ended.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SECONDS_TO_DIE):
            await asyncio.gather(_discard(process.stdout), _discard(process.stderr), _closed(process.stdin))
            await process.wait()


async def _discard(stream: asyncio.StreamReader | None) -> None:
    while stream is not None and await stream.read(1 << 16):
        pass


def trusted_path(program: str) -> str:
    """Return the file that a program of the site is, all links followed; `UntrustedScript` if it must not be run.

    Nobody but root can write the file or a folder above it, so it cannot be exchanged between this and its start.
    """
    path = program if "/" in program else shutil.which(program, path=_ENVIRONMENT["PATH"])
    if path is None:
        raise site_script.UntrustedScript(f"{program} is not in {_ENVIRONMENT['PATH']}: write its whole path")
    os.close(site_script.open_trusted(path))
    return os.path.realpath(path)


def unusable(programs: Iterable[SiteProgram]) -> list[tuple[SiteProgram, str]]:
    """Return the programs of the site that could not be run on this machine, each with the reason."""
    problems = []
    for program in programs:
        try:
            trusted_path(program.path)
        except site_script.UntrustedScript as error:
            problems.append((program, f"{program.key}: {error}"))
    return problems


def of_this_machine(config: Config) -> list[SiteProgram]:
    """List the programs of the site that run on this machine: those of nodes as well where all nodes are this one."""
    here = config.node_transport is NodeTransport.LOCAL
    return [*site_programs.on_server(config), *(site_programs.on_nodes(config) if here else ())]


PROLOGUE = (
    EventType.SERVER_PROLOGUE_ERROR,
    EventType.SERVER_PROLOGUE_TIMEOUT,
    EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR,
)
EPILOGUE = (
    EventType.SERVER_EPILOGUE_ERROR,
    EventType.SERVER_EPILOGUE_TIMEOUT,
    EventType.SERVER_EPILOGUE_EXIT_CODE_ERROR,
)


def problem(result: ProgramResult, events: tuple[EventType, EventType, EventType]) -> EventType | None:
    """Return the event for a failed server prologue or epilogue; None if it succeeded."""
    not_found, too_slow, bad_end = events
    if result.status is None:
        return too_slow
    if result.status == -1:
        return not_found
    return bad_end if result.status else None
