"""Keys that `oarsub` brings for a job: read or made on this machine, written for the user to keep, shown by `oarsh`.

A private key is a secret: it stands in no argument list but that of the user's own call, where it is wiped out.
"""

from __future__ import annotations

import contextlib
import os
import sys

from oarlock.client import RequestRefused
from oarlock.node.wire.stream import PROOF_NAMESPACE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput

KEY_VARIABLE = "OAR_JOB_KEY_FILE"
"""Names the file of a job's key: in a job that has one, and for `oarsh` elsewhere."""

LONGEST_KEY = 16 * 1024
"""Bytes; an RSA key of 16384 bits has less."""

_TEXTS = ("import_job_key_inline", "ssh_private_key")
_OPTION = {
    "import_job_key_from_file": "-i",
    "import_job_key_inline": "--import-job-key-inline",
    "ssh_private_key": "--ssh_private_key",
}
_JOB = "%jobid%"


class KeyExport:
    """Where a key is to be written once the job has its number; checked before anything is submitted."""

    def __init__(self, pattern: str, key: str) -> None:
        self._pattern, self._key = pattern, key
        folder = os.path.dirname(pattern) or "."
        if not os.path.isdir(folder):
            raise _refused_file(pattern, "its folder does not exist")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise _refused_file(pattern, "you may not write into its folder")
        if os.path.islink(pattern):
            raise _refused_file(pattern, "it is a link, and a key is written through none")
        if os.path.isdir(pattern):
            raise _refused_file(pattern, "it is a folder")

    def write(self, ids: Sequence[int], out: CommandOutput) -> None:
        """Write the key under the name for each job; a file that is there is replaced."""
        for path in dict.fromkeys(self._pattern.replace(_JOB, str(job)) for job in ids):
            try:
                self._write(path)
            except OSError as why:
                sentence = f"The key cannot be written to {path}: {why.strerror}."
                hint = f"The job is submitted; `oardel {ids[0]}` takes it back."
                out.refuse(RequestRefused(sentence, kind="BadJobKey", hint=hint))
                return
            out.line(f"Export job key to file: {path}")

    def _write(self, path: str) -> None:
        # A new file that takes the name: whatever had it, a link included, is replaced and never written through.
        new = f"{path}.{os.getpid()}.new"
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "w") as file:
                file.write(self._key if self._key.endswith("\n") else f"{self._key}\n")
                os.fchmod(file.fileno(), 0o600)
            os.rename(new, path)
        except BaseException:
            os.unlink(new)
            raise


def add_key(body: dict[str, Any], parsed: ParsedOptions, out: CommandOutput) -> KeyExport | None:
    """Add what the options say of a key to a submission; return where the key is to be written, if anywhere."""
    given = [name for name in _OPTION if parsed.given(name)]
    if len(given) > 1:
        sentence = f"{_OPTION[given[0]]} and {_OPTION[given[1]]} cannot be given together."
        raise RequestRefused(sentence, kind="BadOption", hint="A job has one key.")
    if parsed.given("use_job_key"):
        body["use_key"] = True
    if given:
        body["import_key"] = _imported(parsed, given[0], out)
    if parsed.given("ssh_public_key"):
        body["public_key"] = parsed.text("ssh_public_key")
    pattern = parsed.text("export_job_key_to_file")
    if pattern is None or parsed.given("dry_run") or parsed.given("advise"):
        body |= {"use_key": True} if pattern is not None else {}
        return None
    if not pattern:
        raise RequestRefused("-e needs the name of a file.", kind="BadOption", hint=f"oarsub -e key.{_JOB} COMMAND")
    export = KeyExport(pattern, str(body.get("import_key", "")))
    if given:
        return export
    out.line("Generate a job key...")
    body["import_key"] = make_key()
    return KeyExport(pattern, body["import_key"])


def _imported(parsed: ParsedOptions, name: str, out: CommandOutput) -> str:
    if name in _TEXTS:
        text = parsed.text(name) or ""
        wipe_arguments(text)
        out.line("Import job key inline.")
        return text
    path = parsed.text(name) or ""
    text = read_key(path)
    out.line(f"Import job key from file: {path}")
    return text


def read_key(path: str) -> str:
    """Read a file that should hold a private key; refuse what cannot be one."""
    try:
        with open(path, "rb") as file:
            data = file.read(LONGEST_KEY + 1)
    except (OSError, ValueError) as why:
        sentence = f"The key {path} cannot be read: {getattr(why, 'strerror', None) or why}."
        raise RequestRefused(sentence, kind="BadJobKey", hint="Look at its path and mode.") from None
    if problem := _problem_of_key(data):
        sentence = f"{path} is no private key: {problem}."
        raise RequestRefused(sentence, kind="BadJobKey", hint="Give the file without `.pub` that `ssh-keygen` made.")
    return data.decode()


def _problem_of_key(data: bytes) -> str:
    """Return why a file cannot be a private key; nothing if it may be one, which the server looks at."""
    if len(data) > LONGEST_KEY:
        return f"it has more than {LONGEST_KEY} bytes"
    try:
        text = data.decode()
    except UnicodeDecodeError as why:
        return f"byte {why.start + 1} of it is not valid UTF-8"
    if "-----BEGIN" in text:
        return ""
    if text.startswith(("ssh-", "ecdsa-")):
        return "it is a public one"
    return "there is none in it" if text.strip() else "it is empty"


def make_key() -> str:
    """Make a pair with ssh-keygen and return its private half; no file of it is left."""
    import tempfile

    program = _ssh_keygen()
    in_memory = next((place for place in (os.environ.get("XDG_RUNTIME_DIR"), "/dev/shm") if _is_ours(place)), None)  # noqa: S108
    with tempfile.TemporaryDirectory(dir=in_memory, prefix="oarsub-") as folder:
        path = f"{folder}/key"
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "job key", "-f", path]
        null = [(os.POSIX_SPAWN_OPEN, at, os.devnull, os.O_RDWR, 0) for at in range(3)]
        status = os.waitpid(os.posix_spawn(program, words, os.environ, file_actions=null), 0)[1]
        if status:
            sentence = f"`ssh-keygen` made no key (wait status {status})."
            raise RequestRefused(sentence, kind="BadJobKey", hint="Is there room in /tmp?")
        return read_key(path)


def _ssh_keygen() -> str:
    import shutil

    program = shutil.which("ssh-keygen")
    if program is None:
        raise RequestRefused("`ssh-keygen` is not in $PATH.", kind="BadJobKey", hint="Install it: job keys need it.")
    return program


def sign(path: str, text: str) -> str:
    """Sign a text with a private key by ssh-keygen."""
    program = _ssh_keygen()
    try:
        with open(path, "rb"):
            pass
    except (OSError, ValueError) as why:
        sentence = f"The key {path} of ${KEY_VARIABLE} cannot be read: {getattr(why, 'strerror', None) or why}."
        raise RequestRefused(sentence, kind="BadJobKey", hint="Look at its path and mode.") from None
    status, signature, says = _output_of(program, ["-Y", "sign", "-n", PROOF_NAMESPACE, "-f", path], text)
    if status:
        complaint = " ".join(says.split()) or f"wait status {status}"
        sentence = f"ssh-keygen cannot sign with {path}: {complaint}."
        hint = "It has to be a private key without passphrase that nobody else can read, and OpenSSH 8.1 or newer."
        raise RequestRefused(sentence, kind="BadJobKey", hint=hint)
    return signature


def _output_of(program: str, words: Sequence[str], text: str) -> tuple[int, str, str]:
    """Run a program on a short text; return its wait status, its output and its errors. It asks nobody anything."""
    ends = [os.pipe() for _ in range(3)]
    (given, into), (out, printed), (err, complained) = ends
    actions = [(os.POSIX_SPAWN_DUP2, end, at) for at, end in enumerate((given, printed, complained))]
    variables = {**os.environ, "SSH_ASKPASS_REQUIRE": "force", "SSH_ASKPASS": "/bin/false"}
    pid = os.posix_spawn(program, [program, *words], variables, file_actions=actions, setsid=True)
    for end in (given, printed, complained):
        os.close(end)
    with contextlib.suppress(BrokenPipeError), os.fdopen(into, "w") as file:  # one that ended has said why
        file.write(text)
    texts = []
    for end in (out, err):
        with os.fdopen(end, encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
    return os.waitpid(pid, 0)[1], texts[0], texts[1]


def _is_ours(place: str | None) -> bool:
    return bool(place) and os.path.isdir(place or "") and os.access(place or "", os.W_OK | os.X_OK)


def wipe_arguments(secret: str) -> None:
    """Overwrite a text in the argument list of this process, which everybody can read.

    Where the kernel does not let us, it stays as the user typed it.
    """
    line = secret.encode(errors="surrogateescape")
    try:
        with open("/proc/self/stat", "rb") as file:
            # The name in parentheses may hold blanks; behind it, arg_start and arg_end are the fields 48 and 49.
            numbers = file.read().rpartition(b")")[2].split()
        start, end = int(numbers[45]), int(numbers[46])
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            at = memory.read(end - start).find(line)
            if line and at >= 0:
                memory.seek(start + at)
                memory.write(b"x" * len(line))
    except (OSError, ValueError, IndexError):
        sys.stderr.write("oarsub: Other users of this machine may see the key in the list of processes: use -i FILE.\n")


def _refused_file(path: str, why: str) -> RequestRefused:
    return RequestRefused(
        f"The key cannot be written to {path}: {why}.", kind="BadJobKey", hint="Nothing was submitted."
    )
