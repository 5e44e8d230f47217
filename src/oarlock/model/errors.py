"""Refusals. One class a refusal: a sentence that names the value at fault, a hint that names the way out.

The HTTP status belongs to the refusal; exit codes belong to the commands and stand in one table in `cli/`.
"""

from typing import ClassVar


class OarlockError(Exception):
    """Something was refused; `str()` is a sentence to a person, `hint` the next move."""

    http_status: ClassVar[int] = 400
    retry_seconds: ClassVar[int] = 0  # after so long the same may be asked again

    def __init__(self, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint

    def full_text(self) -> str:
        """Return the sentence with its way out, as a terminal shows it."""
        return f"{self}\n  {self.hint}" if self.hint else str(self)


class NotFound(OarlockError):
    """Something that is not there, as a base of refusals."""

    http_status = 404


class Conflict(OarlockError):
    """Something that the present state does not allow, as a base of refusals."""

    http_status = 409


class Unavailable(OarlockError):
    """Something that cannot be done now, through no fault of the caller, as a base of refusals.

    `for_administrators` is the sentence with what others need not know: addresses, and what a program said.
    """

    http_status = 503

    def __init__(self, sentence: str, *, hint: str = "", for_administrators: str = "") -> None:
        super().__init__(sentence, hint=hint)
        self.for_administrators = for_administrators or sentence


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


class UnknownVerb(NotFound):
    """An address behind which there is nothing."""


class UnknownArray(NotFound):
    """An array number that was never given."""

    def __init__(self, array_id: int) -> None:
        super().__init__(f"There is no array {array_id}.", hint="`oarstat` lists your jobs.")


class UnknownToken(NotFound):
    """A token that its user does not have."""


class TokenExists(Conflict):
    """A token that was made already; nobody can see it again."""


class TooManyAtOnce(OarlockError):
    """More connections or requests than one user may have open."""

    http_status = 429


class TooManyTries(OarlockError):
    """More tries to sign in than are granted in a minute."""

    http_status = 429

    def __init__(self, seconds: int) -> None:
        super().__init__(
            "Too many tries to sign in.", hint=f"Try again in {seconds} seconds, or use `oarlock login` meanwhile."
        )


class TooMuch(OarlockError):
    """An answer that would be too large to give at once."""

    http_status = 413


class PortTaken(Unavailable):
    """An address on which this server cannot listen."""


class Stopping(Unavailable):
    """A change asked for while the server stops."""


class TooLong(OarlockError):
    """A text over the limits that are checked before it is parsed."""

    http_status = 413


class IllegalMove(Conflict):
    """A state that cannot follow the present one."""


class WalltimeRefused(OarlockError):
    """A change of a walltime that may not be."""

    http_status = 403


class UnknownJob(NotFound):
    """A job number that was never given."""

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id
        super().__init__(f"There is no job {job_id}.", hint="`oarstat` lists yours.")


class UnknownResource(NotFound):
    """A resource number that does not exist."""

    def __init__(self, resource_id: int) -> None:
        super().__init__(f"There is no resource {resource_id}.", hint="`oarnodes -l` lists them.")


class UnknownNode(NotFound):
    """A node that has no resources."""


class NotDesktop(Conflict):
    """A node that the server reaches by itself, whose name a desktop has."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"The node `{node}` is not a desktop: the server reaches it by itself.",
            hint=f"Make a token of another name, or let an administrator set `oarnodesetting -h {node} -p "
            "desktop_computing=YES`.",
        )


class DesktopElsewhere(Conflict):
    """A desktop's token that is used on a second machine."""

    def __init__(self, node: str) -> None:
        super().__init__(
            f"The token of `{node}` is used on another machine, or with another --state directory.",
            hint=f"A token is good for one machine. For this one an administrator makes another: oarlock token add "
            f"--node {node}.",
        )


class DesktopConnected(Conflict):
    """A second connection of a desktop that has one."""

    def __init__(self, node: str) -> None:
        super().__init__(f"The desktop `{node}` is connected already.", hint="End the other `oarlock desktop` first.")


class UnknownQueue(NotFound):
    """A queue that does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(f"There is no queue `{name}`.", hint="`oarnotify -l` lists the queues.")


class SystemColumn(Conflict):
    """A property that the system keeps for itself: it is not added, renamed, dropped or asked for."""


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
        super().__init__("This needs an upgraded connection.", hint="Send `Upgrade: oarlock-session`.")


class JobNotRunning(Conflict):
    """A job that cannot be entered, since it does not run."""

    def __init__(self, job_id: int, state: str) -> None:
        super().__init__(
            f"Job {job_id} is not running: its state is {state}.", hint="Only a job that is Running can be entered."
        )


class MonitoringRefused(Conflict):
    """A job that cannot be recorded."""


class NothingRecorded(NotFound):
    """A job of which nothing was recorded."""

    def __init__(self, job_id: int) -> None:
        super().__init__(
            f"Nothing was recorded of job {job_id}.",
            hint=f"While it runs an administrator can record it: oarmonitor -j {job_id} -f 10",
        )


class NotJobOwner(OarlockError):
    """A job of somebody else, which only its owner can enter."""

    http_status = 403

    def __init__(self, job_id: int, owner: str, caller: str) -> None:
        super().__init__(f"Job {job_id} belongs to {owner}, not to {caller}.", hint="Only its owner can enter a job.")


class ConnectNoop(Conflict):
    """A job that runs nothing, so that there is nothing to enter."""

    def __init__(self, job_id: int) -> None:
        super().__init__(
            f"Job {job_id} is of type noop: it runs nothing that could be entered.",
            hint="`oarstat -fj` names its resources.",
        )


class NotInteractive(Conflict):
    """A job that was submitted with a command, whose terminal somebody asks for."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"Job {job_id} is not interactive.", hint=f"`oarsub -C {job_id}` opens a shell in it.")


class BadKeyProof(OarlockError):
    """A signature that does not show that the client has the key of a job."""

    http_status = 403

    def __init__(self, why: str) -> None:
        super().__init__(f"This does not show that you have the key: {why}.", hint="`oarsh` makes what is needed.")


class KeyOpensNoJob(NotFound):
    """A key that no job has, or no longer."""

    def __init__(self, fingerprint: str, job_id: int) -> None:
        what = f"Job {job_id} is over, or its key is another one than" if job_id else "No job that is not over has"
        super().__init__(
            f"{what} the key {fingerprint}.", hint="`oarsub -i FILE` gives a job a key; it opens the job until its end."
        )


class NodeNotOfJob(NotFound):
    """A node that is not one of a job's."""

    def __init__(self, job_id: int, node: str) -> None:
        super().__init__(f"{node} is not a node of job {job_id}.", hint=f"`oarstat -fj {job_id}` names its nodes.")


class SessionRefused(Conflict):
    """A session that could not be opened, or not be joined again."""


class ProgramsUnusable(OarlockError):
    """Programs of the site that are missing, that others could have written, or that cannot be executed."""

    def __init__(self, reasons: list[str]) -> None:
        super().__init__(
            "\n  ".join(f"{reason}." for reason in reasons),
            hint="Put that right before the server starts: it stops the queues if a job cannot do without the program.",
        )


class SecretExposed(OarlockError):
    """A secret that others could read."""


class DatabaseRefused(Unavailable):
    """A database that must not be opened as it is: newer, damaged, or gone."""


class DatabaseAway(DatabaseRefused):
    """A database that takes nothing for a while: its disk is full, somebody locked it, or it cannot be reached."""


class DatabaseHeld(Unavailable):
    """A database that another server already works on."""


class TooSlow(Unavailable):
    """A question whose answer takes longer than others may be kept waiting."""


class QueueExists(Conflict):
    """A queue that is there already."""


class QueueInUse(Conflict):
    """A queue that cannot be removed while jobs are in it."""


class RequestIdReused(Conflict):
    """A request id that already stands for something else."""


class AttemptOpen(Conflict):
    """A launch that must wait until the one before it is known to be over."""


class StaleAttempt(Conflict):
    """A report about a launch that is over, or never was."""


class BadPropertyName(OarlockError):
    """A name that no property can have."""


class BadPropertyValue(OarlockError):
    """A value that a property cannot take."""


class PropertyExists(Conflict):
    """A property that is there already."""


class ResourceInUse(Conflict):
    """A resource that cannot be removed as it is."""


class NodeUnreachable(Unavailable):
    """A node that does not answer. `sent`: the request had left, so whether it was carried out is not known."""

    def __init__(self, node: str, why: str, *, sent: bool = False) -> None:
        super().__init__(f"Node `{node}` does not answer: {why}.", hint="`oarnodes -s` shows its state.")
        self.node, self.why, self.sent = node, why, sent


class NodeRefused(Conflict):
    """A request that a node will not carry out; `word` is the reason in the node's own vocabulary."""

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
