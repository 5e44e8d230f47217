"""What each option of a submission may say: the same for a command, a page, an admission rule.

Every function gives its text back, or refuses it with a sentence.
"""

import re
import shlex

from oarlock.lang.duration import LONGEST
from oarlock.lang.limits import TYPED_BYTES, fits, short
from oarlock.lang.signals import SIGNALS
from oarlock.model.errors import UnknownQueue
from oarlock.model.job_type import VALUES
from oarlock.model.submission_errors import (
    BadCheckpoint,
    BadEnvironment,
    BadName,
    BadNotify,
    BadPath,
    BadSignal,
    BadType,
)

LONGEST_NAME = 255
NOTIFY_TAGS = ("START", "RUNNING", "END", "ERROR", "INFO", "SUSPENDED", "RESUMING", "REPORT")

_UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_QUEUE = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_:-]*(=.+)?", re.DOTALL)
_NOTIFY = re.compile(r"(?:\[(?P<tags>[^\]]*)\])?(?:mail:[^\s@]+(?:@[^\s@]+)?|exec:(?P<program>/.*))")


def name(text: str, *, what: str = "job") -> str:
    """Check a name of a job, which also becomes part of the names of its output files."""
    return _plain(text, f"`{short(text)}` cannot be the name of a {what}")


def project(text: str) -> str:
    """Check the name of a project."""
    return name(text, what="project")


def queue(text: str) -> str:
    """Check that a queue could have this name; whether there is one is for the store to say."""
    if not _QUEUE.fullmatch(text):
        raise UnknownQueue(short(text))
    return text


def type_(text: str) -> str:
    """Check a job type (`word` or `word=value`); those whose value we read must have a good one."""
    if len(text) > LONGEST_NAME or _UNPRINTABLE.search(text) or not _TYPE.fullmatch(text):
        raise BadType(f"`{short(text)}` is not a job type.", hint="A type is a word, or word=value.")
    word = text.partition("=")[0]
    value = VALUES.get(word)
    if value and not value.form.fullmatch(text, len(word)):
        raise BadType(f"`{short(text)}` is not a way to write the type {word}.", hint=f"Its value is {value.expected}.")
    return text


def notify(text: str) -> str:
    """Check a kind of notification: `mail:…` or `exec:/…`, perhaps behind `[TAG,…]`."""
    match = _NOTIFY.fullmatch(text)
    if match is None or _UNPRINTABLE.search(text) or len(text) > TYPED_BYTES:
        raise BadNotify(
            f"`{short(text)}` is not a kind of notification.",
            hint="Write mail:you@example.org or exec:/path/program args.",
        )
    if match["program"]:
        words(match["program"])
    for tag in (match["tags"] or "END").split(","):
        if tag.strip() not in NOTIFY_TAGS:
            raise BadNotify(f"`{short(tag)}` is not a notification tag.", hint=f"Known are {', '.join(NOTIFY_TAGS)}.")
    return text


def words(program: str) -> list[str]:
    """Split a program and its arguments at blanks; quotes keep words together, as in a shell, and nothing else does."""
    try:
        return shlex.split(program)
    except ValueError as problem:
        raise BadNotify(
            f"`{short(program)}` cannot be split into words: {str(problem).lower()}.", hint="Close what you opened."
        ) from problem


def directory(text: str) -> str:
    """Check the launching directory; the node sees whether it exists."""
    if not path(text).startswith("/"):
        raise BadPath(f"The directory `{short(text)}` does not begin with `/`.", hint="Give the whole path.")
    return text


def path(text: str) -> str:
    """Check the path of an output file, patterns such as `%jobid%` included."""
    fits(text, what="path")
    if not text or _UNSTORABLE.search(text) or "\n" in text:
        raise BadPath(f"`{short(text)}` cannot be the name of a file.", hint="Give a path on one line.")
    return text


def command(text: str) -> str:
    """Check a command; its size is for the caller to bound."""
    if _UNSTORABLE.search(text):
        raise BadPath("The command holds a character that no command can have.", hint="Write it as plain UTF-8 text.")
    return text


def variable(given: str, value: str) -> None:
    """Check a variable of the environment."""
    if not given or "=" in given or _UNSTORABLE.search(given) or _UNSTORABLE.search(value):
        raise BadEnvironment(
            f"The variable `{short(given)}` cannot be set.", hint=f"Unset it first: unset {short(given)}"
        )


def checkpoint(seconds: int) -> int:
    """Check how long before its end a job gets the checkpoint signal; 0 is never."""
    if not 0 <= seconds <= LONGEST:
        raise BadCheckpoint(f"A checkpoint {seconds} s before the end cannot be.", hint="Give seconds, 0 for none.")
    return seconds


def signal(number: int) -> int:
    """Check the number of a signal."""
    if number not in SIGNALS:
        raise BadSignal(f"There is no signal {number}.", hint="Signals have numbers from 1 to 64; 12 is SIGUSR2.")
    return number


def _plain(text: str, refusal: str) -> str:
    if not text or len(text) > LONGEST_NAME:
        raise BadName(f"{refusal}: it has {len(text)} characters.", hint=f"It has 1 to {LONGEST_NAME}.")
    if match := _UNPRINTABLE.search(text) or re.search("/", text):
        raise BadName(f"{refusal}: it holds `{ascii(match[0])[1:-1]}`.", hint="Use printable characters, no `/`.")
    return text
