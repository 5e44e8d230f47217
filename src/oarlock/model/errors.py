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

    def full_text(self) -> str:
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


class NotYourJob(OarlockError):
    """A job of somebody else."""

    http_status = 403


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
