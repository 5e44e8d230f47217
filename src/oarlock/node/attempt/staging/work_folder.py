"""The directory of a job on a desktop, which shares none with the site: made for the job, gone when it is over."""

from __future__ import annotations

import os
import pwd

from oarlock.node.attempt.user.command import CannotStart
from oarlock.node.attempt.user.identity import UserRefused, resolve
from oarlock.node.wire.messages import Launch, NodeSettings

Files = dict[str, tuple[int, int, int]]
"""Files by their paths below a directory: inode, size, and the last change in nanoseconds."""


def place(launch: Launch, settings: NodeSettings) -> Launch:
    """Return a launch as this node runs it: on a desktop in a directory of its own, with its outputs inside.

    A desktop that a plain user runs has no other account to run jobs as than that user's own.
    """
    if not settings.work:
        return launch
    user, uid = launch.user, launch.uid
    if os.geteuid() != 0:
        user, uid = pwd.getpwuid(os.geteuid()).pw_name, None
    return launch._replace(
        user=user,
        uid=uid,
        directory=f"{settings.work}/{launch.job}.{launch.attempt}",
        stdout=_inside(launch.stdout),
        stderr=_inside(launch.stderr),
    )


def _inside(output: str) -> str:
    return output if output in {"", os.devnull} else os.path.basename(output)


def make(launch: Launch, *, lowest_uid: int) -> None:
    """Make the directory of a job, which belongs to its user; raise `CannotStart` if that cannot be."""
    try:
        os.mkdir(launch.directory, 0o700)
        if os.geteuid() == 0:
            user = resolve(launch.user, launch.uid, lowest=lowest_uid)
            os.chown(launch.directory, user.uid, user.gid)
    except UserRefused as refusal:
        os.rmdir(launch.directory)
        # Not USER_UNKNOWN: that another machine lacks an account says nothing of the user's jobs elsewhere.
        raise CannotStart("USER_SHELL", f"{refusal}; this desktop runs jobs of its own accounts only") from refusal
    except OSError as error:
        raise CannotStart("CANNOT_CREATE_TMP_DIRECTORY", f"{launch.directory}: {error.strerror}") from error


def scan(directory: str) -> Files:
    """List the plain files below a directory; links are not followed."""
    files: Files = {}
    for path, _, names in os.walk(directory):
        for name in names:
            whole = os.path.join(path, name)
            about = os.lstat(whole)
            files[os.path.relpath(whole, directory)] = about.st_ino, about.st_size, about.st_ctime_ns
    return files
