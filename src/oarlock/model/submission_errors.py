"""Refusals of what somebody submits: its options, its script, what it asks for, and what rules think of it."""

from oarlock.model.errors import OarlockError, SyntaxRefused


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
    """A way to be told that is neither a mail nor a program."""


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


class ResubmitRefused(OarlockError):
    """A job that cannot be submitted once more."""

    http_status = 409


class NotEnoughResources(OarlockError):
    """A request that even the empty cluster cannot meet."""


class RefusedByRule(OarlockError):
    """A job that an admission rule does not let in."""

    http_status = 403


class RuleFailed(OarlockError):
    """An admission rule that did not work, so that nothing is let in by it."""

    http_status = 503


class BadRule(OarlockError):
    """An admission rule that cannot be read."""


class RuleNotTrusted(OarlockError):
    """A rule that others than the administrator could change."""


class UnknownRule(OarlockError):
    """A number that no admission rule of the table has."""

    http_status = 404


class EditorFailed(OarlockError):
    """A text editor that could not be run, or that failed."""


class ExamplesFailed(OarlockError):
    """Examples beside the rules that do not come out as they say."""


class JobKeyNotYet(OarlockError):
    """A job with an ssh key of its own, which nothing makes yet."""

    def __init__(self) -> None:
        super().__init__(
            "Job keys are not here yet.",
            hint="Leave out -k and -i; rules and OARSUB_FORCE_JOB_KEY must not ask for a key either.",
        )


class ContainerClosed(OarlockError):
    """A container whose owner did not let this user in."""

    http_status = 403


class CountsChanged(OarlockError):
    """A submission that rules admitted by counts of the user's jobs which changed before it was stored."""

    http_status = 503
