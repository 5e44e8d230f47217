"""Frontends: hosts where jobs of type deploy and cosystem run their command, who may use them, and how much of them."""

from oarlock.config import Config
from oarlock.model.job_type import JobType, JobTypes, parse_types
from oarlock.model.submission import Submission
from oarlock.model.submission_errors import FrontendRefused
from oarlock.node.wire.messages import CgroupLimits

_EVERYBODY = "*"
_MB = 1 << 20


def host(types: JobTypes, config: Config) -> str | None:
    """Return the frontend of a job, empty if the site has none; None for jobs that run on their own nodes."""
    if types.frontend is None:
        return None
    return config.cosystem_hostname if types.frontend is JobType.COSYSTEM else config.deploy_hostname


def limits(config: Config) -> CgroupLimits:
    """Return what each job may use of a frontend."""
    memory = config.frontend_job_memory * _MB
    return CgroupLimits(memory=memory or None, pids=config.frontend_job_processes or None)


def check(submission: Submission, config: Config) -> None:
    """Refuse a job for a frontend where there is none, or whose user may not use it."""
    types = parse_types(submission.types)
    word = types.frontend
    if word is None:
        return
    if not host(types, config):
        raise FrontendRefused(
            f"Jobs of type {word} run on a frontend, and this site has none ({word.upper()}_HOSTNAME).",
            hint=f"Submit it without `-t {word}`.",
        )
    names = {_EVERYBODY, submission.user, *(f"@{group}" for group in submission.groups)}
    if names.isdisjoint(config.frontend_users):
        raise FrontendRefused(
            f"`{submission.user}` may not run jobs of type {word} (FRONTEND_USERS).",
            hint=f"Submit it without `-t {word}`, or ask an administrator.",
        )
