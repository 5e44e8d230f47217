"""oarsh: a shell or a command on a node of a job, as ssh, but in the job's own group on that node.

Bytes travel on the server's own connections, so no key of the user and no ssh to the node is needed.
"""

from __future__ import annotations

import os
import sys

from oarlock.cli.options import LONGEST_NUMBER, CommandOptions
from oarlock.cli.output import CommandOutput, open_standard_files, show_text
from oarlock.cli.sessions.session import SessionClient, SessionDenied, SessionOutcome
from oarlock.cli.sessions.terminal import Left
from oarlock.cli.submitting.job_keys import KEY_VARIABLE, sign
from oarlock.client import Client, RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

JOB_VARIABLE = "OAR_JOB_ID"
SOCKET_VARIABLE = "OARSH_SOCKET"
"""In a job, the socket of its node, by which the server is reached."""

OPTIONS = CommandOptions(
    "oarsh",
    "Run a command or a login shell on a node of a job, as ssh does.",
    usage=("[OPTION]... HOST [COMMAND]...",),
    about=(
        "The job is $OAR_JOB_ID, or the one that has the key in the file $OAR_JOB_KEY_FILE: with it no account and no "
        "token is needed. What is started runs as the job's user in the job's group on that node, and ends with the "
        "job; there is no ssh to the node. Options are those of ssh: those that would leave the job "
        "(-a -A -i -l -o -p -E -F -G -I -w) are dropped, others than the ones below have no effect."
    ),
)
OPTIONS.flag("-t", "make a terminal, also for a command")
OPTIONS.flag("-T", "make no terminal")
OPTIONS.flag("-X", "allow programs there to use the display of this terminal, as ssh -Y does (also -Y)")
OPTIONS.flag("-n", "give the command no input")
OPTIONS.flag("-h --help", "show this help and exit")
OPTIONS.flag("-V --version", "show the version and exit")
OPTIONS.example("OAR_JOB_ID=42 oarsh node3", "open a shell on a node of job 42")
OPTIONS.example("oarsh node3 hostname", "run a command there, within the job")
OPTIONS.example("OAR_JOB_KEY_FILE=key.42 oarsh node3", "enter the job that has this key")

_WITHOUT_VALUE = frozenset("46AaCfGgKkMNnqsTtVvXxYy")
_WITH_VALUE = frozenset("BbcDEeFIiJLlmOopQRSWw")
_LOST = 255  # as ssh, for everything that is not the command's own end


class RemoteCommand:
    """What a command line of oarsh says."""

    def __init__(self, host: str, words: Sequence[str], flags: str) -> None:
        self.host, self.command = host, " ".join(words) or None
        self.no_input = "n" in flags
        self.wants_display = not {"X", "Y"}.isdisjoint(flags)
        terminals = [flag for flag in flags if flag in "tT"]
        self.terminal = {"t": True, "T": False}.get(terminals[-1]) if terminals else self.command is None
        if "s" in flags and self.command == "sftp":
            self.command = "exec /usr/lib/openssh/sftp-server"

    def wants_terminal(self) -> bool:
        """Return whether a terminal is to be made: only where there is one here, as ssh does."""
        return self.terminal is True and os.isatty(0)


def parse(words: Sequence[str]) -> RemoteCommand:
    """Parse a command line as ssh does: options may stand before the host and right behind it."""
    _check_texts(words)
    rest, flags = list(words), ""
    host: str | None = None
    while rest:
        if rest[0] == "--":
            rest.pop(0)
            host = rest.pop(0) if host is None and rest else host
            break
        if rest[0].startswith("-") and rest[0] != "-":
            flags += _read_option(rest)
        elif host is None:
            host = rest.pop(0)
        else:
            break
    if not host:
        raise RequestRefused("oarsh needs the name of a node.", kind="BadOption", hint="oarsh HOST [COMMAND]...")
    return RemoteCommand(host.rpartition("@")[2], rest, flags)


def _check_texts(words: Sequence[str]) -> None:
    """Raise `RequestRefused` for a word that is not UTF-8: requests are texts."""
    for word in words:
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            sentence = f"`{ascii(word)[1:-1]}` is not valid UTF-8."
            raise RequestRefused(sentence, kind="BadOption", hint="Put it into a script, or look at your locale.")


def _read_option(rest: list[str]) -> str:
    """Remove an option, with its value if it has one; return the letters of those that have none."""
    letters, flags = rest.pop(0)[1:], ""
    for at, letter in enumerate(letters):
        if letter in _WITH_VALUE:
            if at == len(letters) - 1:
                if not rest:
                    raise RequestRefused(f"-{letter} needs a value.", kind="BadOption", hint="oarsh HOST [COMMAND]...")
                rest.pop(0)
            return flags
        if letter not in _WITHOUT_VALUE:
            unknown = f"There is no option -{letter}{letters[1:] if letter == '-' else ''}."
            raise RequestRefused(unknown, kind="BadOption", hint="Options are those of ssh; `oarsh --help` says more.")
        flags += letter
    return flags


def main() -> int:
    """Run the command; end with its status."""
    open_standard_files()
    words = sys.argv[1:]
    if words[:1] in (["-h"], ["--help"], ["-V"], ["--version"]):
        return explain(OPTIONS, words[0])
    out = CommandOutput("oarsh")
    try:
        return _run(parse(words))
    except RequestRefused as refused:
        out.refuse(refused)
        return out.code
    except (KeyboardInterrupt, Left):
        return _LOST


def explain(options: CommandOptions, word: str) -> int:
    """Print the help or the version of a command whose other options are those of a program of others."""
    from oarlock import __version__
    from oarlock.cli.options import help_text

    show_text(help_text(options).rstrip() if word in {"-h", "--help"} else f"Oarlock version : {__version__}")
    return 0


def _run(remote: RemoteCommand) -> int:
    key, on_node = os.environ.get(KEY_VARIABLE, ""), os.environ.get(SOCKET_VARIABLE, "")
    try:
        if key and not on_node:
            outcome = _session(Client(), remote, _job() if os.environ.get(JOB_VARIABLE) else 0, key=key)
        else:
            # A job goes on while the server is restarted.
            outcome = _session(Client(on_node or None), remote, _job(), is_patient=bool(on_node))
    except SessionDenied as refused:
        if not key:
            raise
        outcome = _session_elsewhere(remote, key, refused)
    if outcome.status is None or outcome.ended:
        why = outcome.says or outcome.ended
        show_text(f"oarsh: The job ended{': ' + why if why else ''}.", file=sys.stderr)
        return _LOST
    return os.waitstatus_to_exitcode(outcome.status) if os.WIFEXITED(outcome.status) else _LOST


def _session(
    client: Client, remote: RemoteCommand, job: int, *, key: str = "", is_patient: bool = False
) -> SessionOutcome:
    """Run the command to its end. `key` is the file of the job's key, where that says which job it is."""
    if remote.no_input:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    environment = {name: os.environ[name] for name in ("TERM", "LANG", "LC_ALL") if os.environ.get(name)}
    if remote.wants_display and os.environ.get("DISPLAY") and not key:
        environment |= _forward_display(client, job, remote.host)
    request = {"job": job, "node": remote.host, "command": remote.command, "environment": environment}
    return SessionClient(
        client,
        request,
        lambda _event: None,
        lambda: None,
        wants_terminal=remote.wants_terminal(),
        is_patient=is_patient,
        sign=(lambda challenge: sign(key, challenge)) if key else None,
    ).run()


def _forward_display(client: Client, job: int, node: str) -> dict[str, str]:
    """Forward the user's display to a node; return the variables by which programs find it there."""
    from oarlock.cli.sessions.x11 import DisplayForwarding

    display = DisplayForwarding(client)
    display.start(job, node)
    if display.wait():
        return display.environment
    show_text("oarsh: The display cannot be forwarded.", file=sys.stderr)
    return {}


def _session_elsewhere(remote: RemoteCommand, key: str, refused: SessionDenied) -> SessionOutcome:
    """Run the command on a host of another cluster, where a job has the same key; raise the refusal if none has."""
    away = []
    for server in refused.servers:
        try:
            return _session(Client(server), remote, 0, key=key)
        except RequestRefused as other:  # noqa: PERF203 - there are few servers
            if other.kind not in {"NodeNotOfJob", "KeyOpensNoJob", "ServerDown", "NoAnswer"}:
                raise
            away += [str(other)] if other.kind in {"ServerDown", "NoAnswer"} else []
    raise RequestRefused(str(refused), kind=refused.kind, hint="\n".join([refused.hint, *away])) from None


def _job() -> int:
    text = os.environ.get(JOB_VARIABLE, "")
    if not text:
        raise RequestRefused(
            f"No job is named: ${JOB_VARIABLE} is not set.",
            kind="NoJob",
            hint=f"{JOB_VARIABLE}=42 oarsh HOST, or {KEY_VARIABLE}=FILE oarsh HOST for a job with a key.",
        )
    if not (text.isdecimal() and text.isascii()) or len(text) > LONGEST_NUMBER:
        raise RequestRefused(
            f"${JOB_VARIABLE} is `{text[:40]}`, which is not a job number.",
            kind="NoJob",
            hint="`oarstat` lists your jobs.",
        )
    return int(text)
