"""How large a submission may be: what is sent, each of its fields, and the rows and bytes that it would write."""

from oarlock.lang import where as conditions
from oarlock.model.errors import TooLong
from oarlock.model.submission import ResourceRequest, Submission

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


def bounded(submission: Submission) -> None:
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
