"""Warnings and refusals about a submission that would not do what its user expects."""

import msgspec

from oarlock.config import Config
from oarlock.job.admission.payload import SubmissionPayload
from oarlock.lang.duration import show
from oarlock.model.submission import Submission
from oarlock.model.submission_errors import BadCheckpoint, BadDirective, ResubmitRefused

_SENT_WITH_ALL = frozenset(
    {"resubmit", "directory", "launched_from", "environment", "initial_request", "submitted_from"}
)
"""Fields that `oarsub` always sends."""


def warnings(submission: Submission, config: Config) -> tuple[str, ...]:
    """Return sentences for the user about an admitted submission; `BadCheckpoint` if its checkpoint cannot be."""
    messages = []
    if "mail:" in (submission.notify or "") and not config.mail_smtp_server:
        messages.append("Warning: no mail will be sent, since this server has no mail server (MAIL_SMTP_SERVER).")
    lengths = [alternative.walltime or config.default_job_walltime for alternative in submission.request.alternatives]
    if submission.checkpoint and submission.checkpoint >= max(lengths):
        raise BadCheckpoint(
            f"The checkpoint is asked for {submission.checkpoint} s before the end, and the walltime is "
            f"{show(max(lengths))} ({max(lengths)} s): the signal would come at once.",
            hint="Give fewer seconds with --checkpoint, or a longer walltime.",
        )
    if submission.checkpoint and submission.checkpoint >= min(lengths):
        messages.append(
            f"Warning: with a walltime of {show(min(lengths))} the checkpoint signal, {submission.checkpoint} s before "
            "the end, would come at once."
        )
    return tuple(messages)


def refuse_beside_resubmit(payload: SubmissionPayload) -> None:
    """Refuse what is asked for beside `resubmit`: the job is submitted as it was, and nothing else would count."""
    usual = SubmissionPayload()
    given = [
        name
        for name, value in msgspec.structs.asdict(payload).items()
        if name not in _SENT_WITH_ALL and value != getattr(usual, name)
    ]
    if given:
        raise ResubmitRefused(
            f"Job {payload.resubmit} would be submitted again as it was; "
            f"`{given[0]}` cannot be given beside `resubmit`.",
            hint="Leave it out, or submit a new job.",
        )


def refuse_windows_lines(script: str) -> None:
    """Refuse a script whose first line ends as on Windows: the kernel would look for an interpreter named `sh\\r`."""
    first = script.partition("\n")[0]
    if first.startswith("#!") and first.endswith("\r"):
        raise BadDirective(
            "The lines of the script end as on Windows (CR LF): its interpreter would not be found.",
            hint="`sed -i 's/\\r$//' SCRIPT` mends it.",
        )
