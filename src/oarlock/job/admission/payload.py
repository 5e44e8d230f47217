"""The fields of a submission on the wire; and how large it may be: what is sent, each field, what it would write."""

from collections.abc import Mapping
from typing import Any

import msgspec

from oarlock.job.admission.private_key import hide_keys
from oarlock.lang import where as conditions
from oarlock.lang.limits import closest, short
from oarlock.model.errors import BadField, TooLong, UnknownField
from oarlock.model.submission import ResourceRequest, Submission


class SubmissionPayload(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a submission, as every front end sends them. None of them says who sends it.

    `script` is the text of a script whose `#OAR` lines count. `launched_from` is where a relative `directory` begins,
    and the directory of a job that names none, neither here nor in its script; else that is `/`. `submitted_from`
    (`host:pid` of the command) is kept as OAR's `info_type` and believed by nobody. `file_id` is an archive that its
    user has sent before (`PUT /files`). `at_once` bounds how many jobs of an array run at the same time, as the
    type of that name does. `import_key` is a private key, and `public_key` the half that belongs to it.
    """

    resources: list[str] = []
    properties: str | None = None
    queue: str | None = None
    interactive: bool = False
    command: str | None = None
    script: str | None = None
    name: str | None = None
    project: str | None = None
    types: list[str] = []
    after: list[int] = []
    reservation: str | int | None = None
    hold: bool = False
    checkpoint: int | None = None
    signal: int | None = None
    notify: str | None = None
    directory: str = ""
    launched_from: str = ""
    environment: dict[str, str] = {}
    stdout: str | None = None
    stderr: str | None = None
    array: list[str] | None = None
    at_once: int = 0
    resubmit: int | None = None
    file_id: int | None = None
    use_key: bool = False
    import_key: str | None = None
    public_key: str | None = None
    initial_request: str = ""
    submitted_from: str = ""


def without_keys(payload: SubmissionPayload) -> SubmissionPayload:
    """Return a submission without private keys, fit to be written down."""
    request = hide_keys(payload.initial_request, payload.import_key)
    return msgspec.structs.replace(payload, import_key=payload.import_key and "(hidden)", initial_request=request)


def from_fields(fields: Mapping[str, Any]) -> SubmissionPayload:
    """Convert fields that did not come as JSON: what a Python rule returns, or an example of a rule."""
    names = SubmissionPayload.__struct_fields__
    for name in fields:
        if name not in names:
            raise UnknownField(f"A submission has no field `{short(str(name))}`.", hint=closest(str(name), names))
    try:
        return msgspec.convert(dict(fields), SubmissionPayload)
    except msgspec.ValidationError as problem:
        raise BadField(
            f"The submission cannot be read: {problem}.", hint="`$.name` stands for its field `name`."
        ) from None


SUBMISSION_BYTES = 10 * 1024 * 1024
"""How long a submission may be as it is sent; nothing bounds the parameters of an array but this and their number."""

COMMAND_BYTES = 64 * 1024
SCRIPT_BYTES = 1024 * 1024
ENVIRONMENT_BYTES = 128 * 1024
ARRAY_MEMBERS = 100_000
PARAMETER_BYTES = 4096
KEY_BYTES = 16 * 1024
MOST_TYPES = 64
MOST_DEPENDENCIES = 1000

MOST_ROWS = 1_000_000
"""How many rows of the database one submission may make: seconds of the only writer."""

MOST_BYTES = 256 * 1024 * 1024
"""How many bytes of text one submission may write."""

LARGE_ROWS = 5_000
"""From so many rows on an array is stored in slices."""

SLICE_ROWS = 15_000
"""How many rows are written before others get their turn: about a tenth of a second."""

_OWN_ROWS = 3  # of a job and its history, and of a member that waits for the others
_OWN_BYTES = 300  # of a job's numbers, dates and words, roughly


def rows_of(submission: Submission, members: int | None = None) -> int:
    """Count the rows that a submission makes, or would make with so many members."""
    request = sum(
        1 + sum(1 + len(group.levels) for group in alternative.groups)
        for alternative in submission.request.alternatives
    )
    each = _OWN_ROWS + request + len(submission.types) + len(submission.after)
    return each * (len(submission.array) if members is None else members)


def is_large(submission: Submission) -> bool:
    """Return whether a submission is stored in slices."""
    return len(submission.array) > 1 and rows_of(submission) > LARGE_ROWS


def check_size(submission: Submission) -> None:
    """Refuse a submission that would write too much (`TooLong`)."""
    rows, members, alternatives = rows_of(submission), len(submission.array), submission.request.alternatives
    if rows > MOST_ROWS:
        groups = sum(len(alternative.groups) for alternative in alternatives)
        raise TooLong(
            f"{members} jobs with {len(alternatives)} alternatives ({groups} groups of resources in all), "
            f"{len(submission.types)} types and {len(submission.after)} dependencies make {rows} rows; "
            f"at most {MOST_ROWS} are stored.",
            hint="Submit a smaller array, or ask for fewer alternatives.",
        )
    if members == 1:
        return  # it writes what was sent, and that is bounded
    each = _OWN_BYTES + _bytes_of(submission)
    written = each * members + sum(map(len, submission.array))
    if written > MOST_BYTES:
        raise TooLong(
            f"{members} jobs of about {each} bytes each would write {written} bytes; at most {MOST_BYTES} are stored.",
            hint="Submit a smaller array, or shorten what every job repeats: properties, types, names of files.",
        )


def _bytes_of(submission: Submission) -> int:
    """Measure what is stored for every member; command, environment and the request as typed are not."""
    texts = (submission.name, submission.project, submission.directory, submission.stdout, submission.stderr)
    own = sum(len(text.encode()) for text in (*texts, submission.notify, *submission.types) if text)
    return own + _bytes_of_request(submission.request) + sum(map(len, submission.rule_where))


def _bytes_of_request(request: ResourceRequest) -> int:
    whole = len(conditions.show(request.where)) if request.where is not None else 0
    groups = [group.where for alternative in request.alternatives for group in alternative.groups]
    return whole + sum(len(conditions.show(condition)) for condition in groups if condition is not None)
