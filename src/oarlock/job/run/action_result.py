"""What becomes of a wish about one job, as a command tells it."""

from dataclasses import dataclass

from oarlock.job.run.effects import Instruction
from oarlock.model.errors import OarlockError


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether it was done, in a sentence; `kind` names the refusal, `hint` is the way out."""

    job_id: int
    done: bool
    says: str
    kind: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Answered:
    """The answers, one a job in the order asked, and what is to be done now."""

    answers: tuple[Answer, ...]
    instructions: tuple[Instruction, ...] = ()


def refused(job_id: int, error: OarlockError) -> Answer:
    """Make an answer of a refusal."""
    return Answer(job_id, done=False, says=str(error), kind=type(error).__name__, hint=error.hint)
