"""Refusals of what somebody submits: its options, its script, what it asks for, and what rules think of it."""

from oarlock.model.errors import Conflict, NotFound, OarlockError, SyntaxRefused, Unavailable


class BadDuration(SyntaxRefused):
    """A walltime that is not h, h:m or h:m:s, or is no time at all."""


class BadCount(SyntaxRefused):
    """A number of resources that cannot be asked for."""


class ZeroResources(BadCount):
    """A request for none of something."""


class UnknownProperty(OarlockError):
    """A column that resources (or jobs) do not have."""


class TypesDiffer(OarlockError):
    """A number compared with a text, or the other way round."""


class SubmitterRefused(OarlockError):
    """Somebody who may not run jobs here."""

    http_status = 403


class FrontendRefused(OarlockError):
    """A job for a frontend that there is not, or that is not for its user."""

    http_status = 403


class NoCommand(OarlockError):
    """A job with nothing to run."""


class BadName(OarlockError):
    """A name that a job or a project cannot have."""


class BadType(OarlockError):
    """A job type that is not written as it should be."""


class BadNotify(OarlockError):
    """A kind of notification that is neither a mail nor a program."""


class BadCheckpoint(OarlockError):
    """A time before the end that no checkpoint can have."""


class BadSignal(OarlockError):
    """A number that is no signal."""


class BadPath(OarlockError):
    """A directory or a file that cannot be named so."""


class BadEnvironment(OarlockError):
    """A variable that no process can have."""


class BadReservation(OarlockError):
    """A date that cannot be read."""


class ReservationPast(OarlockError):
    """A reservation whose time is over already."""


class BadArray(OarlockError):
    """An array without members, or with too many."""


class BadScript(SyntaxRefused):
    """A script in which `#OAR` lines cannot be found."""


class BadDirective(OarlockError):
    """A `#OAR` line that cannot be followed."""


class StageInRefused(OarlockError):
    """An archive that is not taken, or is not there for the job that names it."""


class StageInNeeded(OarlockError):
    """A `#OAR` line that names an archive or a directory, which only the command can send; `path` is its name."""

    def __init__(self, sentence: str, *, path: str) -> None:
        super().__init__(sentence, hint="Send it first (`POST /files`) and give its number as `file_id`; oarsub does.")
        self.path = path


class ParameterFileNeeded(OarlockError):
    """A `#OAR` line that names a parameter file, which only the command can read; `path` is its name."""

    def __init__(self, sentence: str, *, path: str) -> None:
        super().__init__(sentence, hint="Send its lines as `array`; oarsub does.")
        self.path = path


class InteractiveArray(OarlockError):
    """An interactive job that would be many."""


class InteractiveNoop(OarlockError):
    """An interactive job that runs nothing."""


class InteractiveReservation(OarlockError):
    """An interactive job at a date."""


class UnknownDependency(OarlockError):
    """A job to wait for that never was."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"There is no job {job_id} to wait for.", hint="`oarstat` lists yours.")


class ResubmitRefused(Conflict):
    """A job that cannot be submitted once more."""


class NotEnoughResources(OarlockError):
    """A request that even the empty cluster cannot meet."""


class RefusedByRule(OarlockError):
    """A job that an admission rule does not let in."""

    http_status = 403


class RuleFailed(Unavailable):
    """An admission rule that did not work, so that nothing is let in by it."""


class BadRule(OarlockError):
    """An admission rule that cannot be read."""


class RuleNotTrusted(OarlockError):
    """A rule that others than the administrator could change."""


class UnknownRule(NotFound):
    """A number that no admission rule of the table has."""


class EditorFailed(OarlockError):
    """A text editor that could not be run, or that failed."""


class ExamplesFailed(OarlockError):
    """Examples beside the rules that do not come out as they say."""


class BadJobKey(OarlockError):
    """What was given as the private key of a job, and cannot be one."""


class JobKeyTaken(OarlockError):
    """A key that a job of somebody else has."""

    http_status = 409

    def __init__(self) -> None:
        super().__init__(
            "A job of another user has this key, and is not over: whoever has a key enters all its jobs.",
            hint="Make a key of your own: `ssh-keygen -t ed25519 -N '' -f FILE`.",
        )


class KeyNotStored(OarlockError):
    """A private key that could not be written to the state directory."""

    http_status = 503

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The key cannot be kept for the job: {why}.",
            hint="Nothing was submitted. Leave the key out, or tell your administrator.",
        )


class ContainerClosed(OarlockError):
    """A container whose owner did not let this user in."""

    http_status = 403


class CountsChanged(Unavailable):
    """A submission that rules admitted by counts of the user's jobs which changed before it was stored."""
