"""Results of user actions on jobs (kill, hold, resume, signal), one for each job."""

from dataclasses import dataclass

from oarlock.job.run.effects import Effect
from oarlock.model.errors import OarlockError


@dataclass(frozen=True, slots=True)
class ActionResult:
    """Whether it was done, in a sentence; `kind` names the refusal, `hint` is the way out."""

    job_id: int
    done: bool
    says: str
    kind: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """The answers, one a job in the order asked, and what is to be done now."""

    answers: tuple[ActionResult, ...]
    effects: tuple[Effect, ...] = ()


def refused(job_id: int, error: OarlockError) -> ActionResult:
    """Make an answer of a refusal."""
    return ActionResult(job_id, done=False, says=str(error), kind=type(error).__name__, hint=error.hint)
