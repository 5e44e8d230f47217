"""Refusals. One class a refusal: a sentence that names the value at fault, a hint that names the way out.

The HTTP status belongs to the refusal; exit codes belong to the commands and stand in one table in `cli/`.
"""

from typing import ClassVar


class OarlockError(Exception):
    """Something was refused; `str()` is a sentence to a person, `hint` the next move."""

    http_status: ClassVar[int] = 400

    def __init__(self, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint

    def told(self) -> str:
        """Return the sentence with its way out, as a terminal shows it."""
        return f"{self}\n  {self.hint}" if self.hint else str(self)


class SyntaxRefused(OarlockError):
    """A text that does not follow its grammar; shows the place with a caret."""

    def __init__(self, what: str, *, text: str, at: int, expected: str, hint: str = "") -> None:
        self.text, self.at, self.expected = text, at, expected
        super().__init__(f"{what}: expected {expected}.\n{_pointed_at(text, at)}", hint=hint)


class BadRequest(OarlockError):
    """A request that cannot be understood: a field that is not known, missing, or of another kind."""


class NotSignedIn(OarlockError):
    """A caller without a name, where one is needed."""

    http_status = 401


class Forbidden(OarlockError):
    """A thing that this caller may not do."""

    http_status = 403


class UnknownVerb(OarlockError):
    """An address behind which there is nothing."""

    http_status = 404


class UnknownArray(OarlockError):
    """An array number that was never given."""

    http_status = 404

    def __init__(self, array_id: int) -> None:
        super().__init__(f"There is no array {array_id}.", hint="`oarstat` lists your jobs.")


class UnknownToken(OarlockError):
    """A token that its user does not have."""

    http_status = 404


class TokenExists(OarlockError):
    """A token that was made already; nobody can see it again."""

    http_status = 409


class TooManyAtOnce(OarlockError):
    """More connections or requests than one user may have open."""

    http_status = 429


class TooMuch(OarlockError):
    """An answer that would be too large to give at once."""

    http_status = 413


class PortTaken(OarlockError):
    """An address on which this server cannot listen."""

    http_status = 503


class Stopping(OarlockError):
    """A change asked for while the server stops."""

    http_status = 503


class TooLong(OarlockError):
    """A text over the limits that are checked before it is parsed."""

    http_status = 413


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


class IllegalMove(OarlockError):
    """A state that cannot follow the present one."""

    http_status = 409


class WalltimeRefused(OarlockError):
    """A change of a walltime that may not be."""

    http_status = 403


class UnknownJob(OarlockError):
    """A job number that was never given."""

    http_status = 404

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"There is no job {job_id}.", hint="`oarstat` lists yours.")


class UnknownResource(OarlockError):
    """A resource number that does not exist."""

    http_status = 404

    def __init__(self, resource_id: int) -> None:
        super().__init__(f"There is no resource {resource_id}.", hint="`oarnodes -l` lists them.")


class UnknownNode(OarlockError):
    """A node that has no resources."""

    http_status = 404


class UnknownQueue(OarlockError):
    """A queue that does not exist."""

    http_status = 404

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no queue `{name}`.", hint="`oarnotify -l` lists the queues.")


class SystemColumn(OarlockError):
    """A property that the system keeps for itself: it is not added, renamed, dropped or asked for."""

    http_status = 409


class UnknownField(OarlockError):
    """A field that a request does not have; above all, a request never says who sends it."""


class BadField(OarlockError):
    """A field of a request that holds something of another kind."""


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


class BadDirective(OarlockError):
    """A `#OAR` line that cannot be followed."""


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


class NotYourJob(OarlockError):
    """A job of somebody else."""

    http_status = 403


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


class ExamplesFailed(OarlockError):
    """Examples beside the rules that do not come out as they say."""


class ConfigRefused(OarlockError):
    """A settings file that cannot be used as it stands."""


class UnknownPolicy(OarlockError):
    """A name that no policy of a queue has."""


class UpgradeNeeded(OarlockError):
    """A plain request for a session, which needs the connection itself."""

    http_status = 426

    def __init__(self) -> None:
        super().__init__("A session needs an upgraded connection.", hint="Send `Upgrade: oarlock-session`.")


class JobNotRunning(OarlockError):
    """A job that cannot be entered, since it does not run."""

    http_status = 409

    def __init__(self, job_id: int, state: str) -> None:
        super().__init__(
            f"Job {job_id} is not running: its state is {state}.", hint="Only a job that is Running can be entered."
        )


class NotJobOwner(OarlockError):
    """A job of somebody else, which only its owner can enter."""

    http_status = 403

    def __init__(self, job_id: int, owner: str, caller: str) -> None:
        super().__init__(f"Job {job_id} belongs to {owner}, not to {caller}.", hint="Only its owner can enter a job.")


class ConnectNoop(OarlockError):
    """A job that runs nothing, so that there is nothing to enter."""

    http_status = 409

    def __init__(self, job_id: int) -> None:
        super().__init__(
            f"Job {job_id} is of type noop: it runs nothing that could be entered.",
            hint="`oarstat -fj` names its resources.",
        )


class NotInteractive(OarlockError):
    """A job that was submitted with a command, whose terminal somebody asks for."""

    http_status = 409

    def __init__(self, job_id: int) -> None:
        super().__init__(f"Job {job_id} is not interactive.", hint=f"`oarsub -C {job_id}` opens a shell in it.")


class NodeNotOfJob(OarlockError):
    """A node that is not one of a job's."""

    http_status = 404

    def __init__(self, job_id: int, node: str) -> None:
        super().__init__(f"{node} is not a node of job {job_id}.", hint=f"`oarstat -fj {job_id}` names its nodes.")


class SessionRefused(OarlockError):
    """A session that could not be opened, or not be joined again."""

    http_status = 409


class JobKeyNotYet(OarlockError):
    """A job with an ssh key of its own, which nothing makes yet."""

    def __init__(self) -> None:
        super().__init__(
            "Job keys are not here yet.",
            hint="Leave out -k and -i; rules and OARSUB_FORCE_JOB_KEY must not ask for a key either.",
        )


class ProgramsUnusable(OarlockError):
    """Programs of the site that are missing, that others could have written, or that cannot be executed."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(
            "\n  ".join(f"{reason}." for reason in reasons),
            hint="Put that right before the server starts: it stops the queues if a job cannot do without the program.",
        )


class SecretExposed(OarlockError):
    """A secret that others could read."""


class DatabaseRefused(OarlockError):
    """A database that must not be opened as it is: newer, damaged, or gone."""

    http_status = 503


class DatabaseAway(DatabaseRefused):
    """A database that takes nothing for a while: its disk is full, somebody locked it, or it cannot be reached."""


class ContainerClosed(OarlockError):
    """A container whose owner did not let this user in."""

    http_status = 403


class CountsChanged(OarlockError):
    """A submission that rules admitted by counts of the user's jobs which changed before it was stored."""

    http_status = 503


class DatabaseHeld(OarlockError):
    """A database that another server already works on."""

    http_status = 503


class TooSlow(OarlockError):
    """A question whose answer takes longer than others may be kept waiting."""

    http_status = 503


class QueueExists(OarlockError):
    """A queue that is there already."""

    http_status = 409


class QueueInUse(OarlockError):
    """A queue that cannot be removed while jobs are in it."""

    http_status = 409


class RequestIdReused(OarlockError):
    """A request id that already stands for something else."""

    http_status = 409


class AttemptOpen(OarlockError):
    """A launch that must wait until the one before it is known to be over."""

    http_status = 409


class StaleAttempt(OarlockError):
    """A report about a launch that is over, or never was."""

    http_status = 409


class BadPropertyName(OarlockError):
    """A name that no property can have."""


class BadPropertyValue(OarlockError):
    """A value that a property cannot take."""


class PropertyExists(OarlockError):
    """A property that is there already."""

    http_status = 409


class ResourceInUse(OarlockError):
    """A resource that cannot be removed as it is."""

    http_status = 409


class NodeUnreachable(OarlockError):
    """A node that does not answer. `sent`: the request had left, so whether it was carried out is not known."""

    http_status = 503

    def __init__(self, node: str, why: str, *, sent: bool = False) -> None:
        super().__init__(f"Node `{node}` does not answer: {why}.", hint="`oarnodes -s` shows its state.")
        self.node, self.why, self.sent = node, why, sent


class NodeRefused(OarlockError):
    """A request that a node will not carry out; `word` is the reason in the node's own vocabulary."""

    http_status = 409

    def __init__(self, node: str, word: str, says: str, *, cause: str = "") -> None:
        super().__init__(
            f"Node `{node}` refused ({word}): {says}.", hint="`oarstat -e JOB` tells what happened before."
        )
        self.node, self.word, self.says = node, word, says
        self.cause = cause  # why a program of the site failed there, where one did


_SHOWN_BEFORE, _SHOWN_AFTER = 60, 40


def _pointed_at(text: str, at: int) -> str:
    """Draw the place: the text (its neighbourhood, if long), and a caret under position `at`."""
    at = min(at, len(text))
    begin = max(0, at - _SHOWN_BEFORE)
    shown = text[begin : at + _SHOWN_AFTER]
    # One column a character, so that the caret stands where it should.
    line = "".join(c if c.isprintable() else " " for c in shown)
    before = "…" if begin else ""
    after = "…" if begin + len(shown) < len(text) else ""
    return f"  {before}{line}{after}\n  {' ' * (at - begin + len(before))}^"
