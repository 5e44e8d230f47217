"""A submission as it arrives → `Submission`: every field checked, before anything else looks at it."""

import json
import posixpath
import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from msgspec.structs import replace

from oarlock.config import Config
from oarlock.job.admission import dates, script
from oarlock.job.admission.payload import (
    ARRAY_MEMBERS,
    COMMAND_BYTES,
    ENVIRONMENT_BYTES,
    KEY_BYTES,
    MOST_DEPENDENCIES,
    MOST_TYPES,
    PARAMETER_BYTES,
    SCRIPT_BYTES,
    SubmissionPayload,
    check_size,
)
from oarlock.job.admission.private_key import hide_keys
from oarlock.lang import options, request
from oarlock.lang import where as conditions
from oarlock.lang.limits import fits, short
from oarlock.model.errors import TooLong, UnknownJob
from oarlock.model.job import Job, JobKind, JobState, output_file
from oarlock.model.job_type import JobType, parse_types
from oarlock.model.submission import ResourceRequest, Submission
from oarlock.model.submission_errors import (
    BadArray,
    BadName,
    BadReservation,
    InteractiveArray,
    InteractiveNoop,
    InteractiveReservation,
    NoCommand,
    ReservationPast,
    SubmitterRefused,
    UnknownDependency,
)

JOB_NUMBERS = range(1, 2**63)
NOW = "now"
"""A reservation that begins at once: by the server's clock, not by that of the caller."""
_LATEST = 2**40  # an epoch second far beyond any calendar, and far inside what a column holds
_DATE = re.compile(r"\s*([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{1,2}:[0-9]{2}:[0-9]{2})\s*")
_INSTANT = re.compile(r"\s*[0-9]{1,13}\s*", re.ASCII)
_DATE_HINT = 'Write it as "2031-03-25 17:30:00", or with an end: "2031-03-25 17:30:00, 2031-03-25 19:00:00".'
_LONGEST_ORIGIN = 255  # bytes, as the manual's column has
_LONGEST_FILE_NAME = 255  # bytes, on every file system of Linux
_WIDEST_NUMBER = 9_999_999_999
T = TypeVar("T")


def read(
    sent: SubmissionPayload, *, user: str, uid: int | None = None, groups: Sequence[str] = (), config: Config, now: int
) -> Submission:
    """Make a submission of what was sent; `user`, `uid` and `groups` are what the kernel or a token says.

    The `#OAR` lines of a script are followed, what was said outside it being stronger. Names of properties are not
    looked at yet: that needs the resources (`admit`).
    """
    payload, notes = script.apply_directives(sent)
    _bounded(payload)
    reservation = _reservation(now if payload.reservation == NOW else payload.reservation)
    request_ = _ending(_request(payload, config), reservation)
    _refuse_past(reservation, request_, config, now)
    submission = Submission(
        user=user,
        uid=uid,
        groups=tuple(groups),
        request=request_,
        queue=_perhaps(options.queue, payload.queue),
        kind=JobKind.INTERACTIVE if payload.interactive else JobKind.PASSIVE,
        command=_perhaps(options.command, payload.command),
        script=_perhaps(options.command, payload.script),
        name=_perhaps(options.name, payload.name),
        project=_perhaps(options.project, payload.project),
        types=_types(payload, now),
        after=tuple(dict.fromkeys(payload.after)),
        reservation=reservation,
        hold=payload.hold,
        checkpoint=options.checkpoint(payload.checkpoint or 0),
        checkpoint_signal=options.signal(12 if payload.signal is None else payload.signal),
        notify=_perhaps(options.notify, payload.notify),
        directory=options.directory(_directory(payload)),
        environment=_environment(payload.environment),
        stdout=_perhaps(options.path, payload.stdout),
        stderr=_perhaps(options.path, payload.stderr),
        array=_array(payload.array),
        resubmit_of=payload.resubmit or 0,
        file_id=payload.file_id,
        use_key=payload.use_key or config.oarsub_force_job_key or _brings_key(payload),
        initial_request=hide_keys(options.command(payload.initial_request), payload.import_key),
        submitted_from=options.command(payload.submitted_from),
        notes=notes,
    )
    _together(submission, many=payload.array is not None)
    check_outputs(submission)
    check_size(submission)
    return submission


def _brings_key(payload: SubmissionPayload) -> bool:
    return payload.import_key is not None or payload.public_key is not None


def check_outputs(submission: Submission) -> None:
    """Refuse a job whose output files could not be made: a part of their names would be too long.

    The number that the job will get is not known yet; the check allows for ten digits.
    """
    if not (submission.name or submission.stdout or submission.stderr):
        return
    job = Job(
        id=_WIDEST_NUMBER, state=JobState.WAITING, user=submission.user, queue="", name=submission.name,
        array_id=_WIDEST_NUMBER, array_index=len(submission.array),
    )  # fmt: skip
    for kind, pattern in (("stdout", submission.stdout), ("stderr", submission.stderr)):
        longest = max(len(part.encode()) for part in output_file(pattern or "", job, kind).split("/"))
        if longest > _LONGEST_FILE_NAME:
            raise BadName(
                f"The name of the job's {kind} file would be {longest} bytes long; a file name has at most "
                f"{_LONGEST_FILE_NAME}.",
                hint="Give the job a shorter name (-n), or name its files with -O and -E.",
            )


def written(submission: Submission) -> dict[str, Any]:
    """Write a submission as the fields that came in: what `read` gives for them is the same again.

    Left out is what no rule may see or change: environment, script, array and keys.
    """
    request_ = submission.request
    return {
        "resources": [request.show_alternative(alternative) for alternative in request_.alternatives],
        "properties": None if request_.where is None else conditions.show(request_.where),
        "queue": submission.queue,
        "interactive": submission.kind is JobKind.INTERACTIVE,
        "command": submission.command,
        "name": submission.name,
        "project": submission.project,
        "types": list(submission.types),
        "after": list(submission.after),
        "reservation": None if submission.reservation is None else submission.reservation[0],
        "hold": submission.hold,
        "checkpoint": submission.checkpoint,
        "signal": submission.checkpoint_signal,
        "notify": submission.notify,
        "directory": submission.directory,
        "stdout": submission.stdout,
        "stderr": submission.stderr,
        "use_key": submission.use_key,
        "initial_request": submission.initial_request,
        "submitted_from": submission.submitted_from,
    }


def allow(user: str, uid: int | None, config: Config) -> None:
    """Refuse those who never run jobs: root, and accounts of the system."""
    if user == "root" or uid == 0:
        raise SubmitterRefused("root does not run jobs.", hint="Submit as a user; an administrator may do it for one.")
    if uid is not None and uid < config.job_min_uid:
        raise SubmitterRefused(
            f"`{short(user)}` (uid {uid}) does not run jobs: uids begin at {config.job_min_uid} (JOB_MIN_UID).",
            hint="Submit as a user.",
        )


def _types(payload: SubmissionPayload, now: int) -> tuple[str, ...]:
    limit = [f"{JobType.AT_ONCE}={payload.at_once}"] if payload.at_once else []
    types = tuple(dict.fromkeys(map(options.type_, [*limit, *payload.types])))
    dates.check(types, now=now)
    return types


def _bounded(payload: SubmissionPayload) -> None:
    fits(payload.command or "", what="command", most=COMMAND_BYTES)
    fits(payload.script or "", what="script", most=SCRIPT_BYTES)
    for key in (payload.import_key, payload.public_key):
        fits(key or "", what="key", most=KEY_BYTES)
    fits(payload.initial_request, what="request as it was typed", most=2 * COMMAND_BYTES)
    fits(payload.submitted_from, what="name of the host and process", most=_LONGEST_ORIGIN)
    if len(payload.types) > MOST_TYPES:
        raise TooLong(f"The job has {len(payload.types)} types; at most {MOST_TYPES} are read.", hint="Give fewer.")
    if len(payload.after) > MOST_DEPENDENCIES:
        raise TooLong(
            f"The job waits for {len(payload.after)} others; it can wait for {MOST_DEPENDENCIES}.",
            hint="Let a small job wait for them, and this one for that.",
        )
    if payload.at_once not in range(ARRAY_MEMBERS + 1):
        raise BadArray(
            f"{payload.at_once} jobs of an array cannot run at the same time.",
            hint=f"Give 1 to {ARRAY_MEMBERS}, or 0 for as many as there is room for.",
        )
    for number in payload.after:
        if number not in JOB_NUMBERS:
            raise UnknownDependency(number)
    if payload.resubmit is not None and payload.resubmit not in JOB_NUMBERS:
        raise UnknownJob(payload.resubmit)


def _request(payload: SubmissionPayload, config: Config) -> ResourceRequest:
    words = config.oarsub_nodes_resources, config.oarsub_default_resources
    return _parsed(tuple(payload.resources), payload.properties or None, *words)


@lru_cache(maxsize=256)
def _parsed(texts: tuple[str, ...], where: str | None, nodes_property: str, default_resources: str) -> ResourceRequest:
    """Read a request: whoever submits in a loop asks for the same again and again."""
    return request.parse(texts, where=where, nodes_property=nodes_property, default_resources=default_resources)


def _ending(request_: ResourceRequest, reservation: tuple[int, int | None] | None) -> ResourceRequest:
    """Return a request whose alternatives without a walltime end when the reservation does."""
    if reservation is None or reservation[1] is None:
        return request_
    seconds = reservation[1] - reservation[0]
    return replace(
        request_,
        alternatives=tuple(
            alternative if alternative.walltime is not None else replace(alternative, walltime=seconds)
            for alternative in request_.alternatives
        ),
    )


def _directory(payload: SubmissionPayload) -> str:
    if not payload.launched_from:
        return payload.directory or "/"
    return posixpath.normpath(posixpath.join(payload.launched_from, payload.directory))


def _perhaps(check: Callable[[str], T], text: str | None) -> T | None:
    return None if text is None else check(text)


def _environment(variables: Mapping[str, str]) -> str:
    """Keep the environment as one JSON text with sorted names; nothing if there is none."""
    for name, value in variables.items():
        options.variable(name, value)
    text = json.dumps(dict(sorted(variables.items())), ensure_ascii=False) if variables else ""
    fits(text, what="environment", most=ENVIRONMENT_BYTES)
    return text


def _array(parameters: Sequence[str] | None) -> tuple[str, ...]:
    if parameters is None:
        return ("",)
    if not parameters:
        raise BadArray("An array of no jobs cannot be submitted.", hint="Give a number above 0, or parameters.")
    if len(parameters) > ARRAY_MEMBERS:
        raise BadArray(f"An array of {len(parameters)} jobs is too large.", hint=f"It has at most {ARRAY_MEMBERS}.")
    for line in set(parameters):
        fits(line, what="line of parameters", most=PARAMETER_BYTES)
        options.command(line)
    return tuple(parameters)


def _reservation(text: str | int | None) -> tuple[int, int | None] | None:
    if text is None:
        return None
    start, end = (text, None) if isinstance(text, int) else _dates(text)
    if end is not None and end <= start:
        raise BadReservation("The reservation would end before it begins.", hint=_DATE_HINT)
    if max(start, end or 0) > _LATEST:
        raise BadReservation("The reservation is too far away.", hint=_DATE_HINT)
    return start, end


def _refuse_past(
    reservation: tuple[int, int | None] | None, request_: ResourceRequest, config: Config, now: int
) -> None:
    """Refuse a reservation that would be over already; one that should have begun begins now."""
    if reservation is None or reservation[0] >= now:
        return
    end = reservation[0] + (request_.alternatives[0].walltime or config.default_job_walltime)
    if end <= now:
        raise ReservationPast(
            f"The reservation would begin at {dates.shown(reservation[0])} and be over by now.",
            hint="Give a later date.",
        )


def _dates(text: str) -> tuple[int, int | None]:
    first, comma, second = text.partition(",")
    return _date(first, text), _date(second, text) if comma else None


def _date(text: str, whole: str) -> int:
    """Read a date in the server's own time zone, or an instant."""
    if _INSTANT.fullmatch(text):
        return int(text)
    match = _DATE.fullmatch(text)
    try:
        if match:
            return int(time.mktime(time.strptime(match[1], "%Y-%m-%d %H:%M:%S")))
    except (ValueError, OverflowError):
        pass
    raise BadReservation(f"`{short(whole)}` is not a date.", hint=_DATE_HINT)


def _together(submission: Submission, *, many: bool) -> None:
    """Refuse what is good alone and bad together."""
    interactive = submission.kind is JobKind.INTERACTIVE
    if interactive and many:
        raise InteractiveArray("An interactive job cannot be an array.", hint="Drop -I, or --array.")
    if interactive and parse_types(submission.types).noop:
        raise InteractiveNoop("A job of type noop runs nothing: it cannot be interactive.", hint="Drop -I, or -t noop.")
    if interactive and submission.reservation:
        raise InteractiveReservation(
            "A reservation cannot be interactive.", hint="Drop -I; `oarsub -C` enters the job once it runs."
        )
    if submission.reservation and parse_types(submission.types).at_once:
        raise BadArray(
            "Jobs of an array that is a reservation all begin at its date.", hint="Drop -t at_once, or the date."
        )
    # A reservation without a command holds its resources; one enters it with `oarsub -C`.
    runs_nothing = interactive or submission.reservation or parse_types(submission.types).noop or submission.resubmit_of
    if not (submission.command or "").strip() and not runs_nothing:
        raise NoCommand("There is nothing to run.", hint="Give a command or a script, or -I for a shell.")
