"""What a Perl rule of OAR seems to do, for the report of an import: read from its text, which is never run."""

import re
from hashlib import sha256
from typing import NamedTuple

from oarlock.lang.rules import perl

_COMMENT = re.compile(r"(?m)^\s*#+\s?(.*)$")
_BLANKS = re.compile(r"""[\s'"\\]+""")
_FILE = re.compile(r"open\s*\(?\s*\(?\w+\s*,\s*[\"']<?\s*([^\"']+)[\"']")

_DOES = (
    (re.compile(r"\bdie\b"), "refuses jobs"),
    (re.compile(r"\$queue_name\s*=[^=~]"), "changes the queue"),
    (re.compile(r"push\s*\(?\s*@\{?\s*\$type_list"), "adds job types"),
    (re.compile(r"\$jobproperties\w*\s*=[^=~]"), "adds a condition on resources"),
    (re.compile(r"->\[1\]\s*=[^=~]"), "changes walltimes"),
    (re.compile(r"->\{(?:property|resources)\}\s*=[^=~]"), "changes what is asked for"),
    (re.compile(r"\$(?:project|jobproject)\s*=[^=~]"), "changes the project"),
    (re.compile(r"\bprint\b"), "tells the user something"),
)
_LOOKS_AT = (
    (re.compile(r"\$user\b"), "the user"),
    (re.compile(r"\bgetgrnam\b|\bgetgrgid\b"), "groups"),
    (re.compile(r"\$queue_name\s*(?:eq|ne|=~|!~)|\$queue_name\s*\)"), "the queue"),
    (re.compile(r"\$jobType\b"), "whether the job is interactive"),
    (re.compile(r"\$reservationField\b"), "whether it is a reservation"),
    (re.compile(r"@\{?\s*\$type_list"), "job types"),
    (re.compile(r"\$project\b"), "the project"),
    (re.compile(r"\$ref_resource_list\b"), "the resources asked for"),
    (re.compile(r"\$dbh\b"), "the database"),
    (re.compile(r"\bsystem\b|`"), "a program that it starts"),
)
# Of each rule that OAR 2.5 installs: a sum of its text without comments and blanks, and our file that does the same.
_SHIPPED = {
    "7905de68215f9b8d": "01-default-queue.toml",
    "34f08891280e7cb5": "02-no-root.toml",
    "c63ee19607c9f78b": "03-drain.toml",
    "e38a5b50f3e127c7": "04-admin-queue.toml",
    "96d3a70712bf3ed5": "05-levels.toml",
    "a236cb13806103ef": "06-besteffort.toml",
    "7f3410c84d9cfcf5": "07-besteffort-reservation.toml",
    "fab9f9d682aa60f8": "08-inner.toml",
    "9ac5989d22281a44": "09-deploy.toml",
    "e40c0cbd14dc390e": "09-deploy.toml",
    "7118c983ee23a788": "10-desktop-computing.toml",
    "9ce66df53ca61524": "11-reservations.toml",
    "7d12654b39aae017": "optional/20-users-of-a-file.toml",
    "4829526d49523ffa": "12-interactive.toml",
    "e9e63fd05452d721": "13-default-walltime.toml",
    "ac52d217078dd465": "14-types.toml",
    "f6615b5d0db80b76": "15-resource-type.toml",
}


class PerlSummary(NamedTuple):
    """What is known of a rule. `shipped` is our file that does the same, `draft` the rule in TOML."""

    title: str
    does: tuple[str, ...]
    looks_at: tuple[str, ...]
    shipped: str
    draft: str

    @property
    def sentence(self) -> str:
        """Describe it in one line."""
        does = ", ".join(self.does) or "changes nothing that is known"
        return f"{does}; looks at {', '.join(self.looks_at)}" if self.looks_at else does


def summarize(text: str) -> PerlSummary:
    """Return what a rule seems to do."""
    code = _COMMENT.sub("", text)
    files = tuple(f"the file {name.strip()}" for name in _FILE.findall(code))
    comment = _COMMENT.search(text)
    return PerlSummary(
        title=comment[1].strip() if comment else "",
        does=tuple(words for pattern, words in _DOES if pattern.search(code)),
        looks_at=tuple(words for pattern, words in _LOOKS_AT if pattern.search(code)) + files,
        shipped=_SHIPPED.get(fingerprint(text), ""),
        draft=perl.translated(text) or "",
    )


def fingerprint(text: str) -> str:
    """Return a sum of a rule's code; comments, blanks, quotes and backslashes do not count."""
    return sha256(_BLANKS.sub("", _COMMENT.sub("", text)).encode()).hexdigest()[:16]
