"""Changed copies are what `dataclasses.replace` would have made."""

from dataclasses import dataclass, fields, replace

import pytest

from oarlock.model.job import Job, JobState
from oarlock.model.record import changed
from oarlock.store.queries.attempts import Attempt

JOB = Job(id=1, state=JobState.WAITING, user="ada", queue="default", types=("noop",))
ATTEMPT = Attempt(job_id=1, secret_hash="ab", nodes=(), opened_us=5)


@pytest.mark.parametrize("record", [JOB, ATTEMPT])
def test_any_field_is_changed_and_all_others_are_kept(record):
    for field in fields(record):
        assert changed(record, **{field.name: "new"}) == replace(record, **{field.name: "new"})
    assert changed(record) == record
    assert changed(record) is not record


def test_a_field_that_does_not_exist_is_refused():
    with pytest.raises(TypeError, match="a Job has no field 'color'"):
        changed(JOB, color="red")


@dataclass(frozen=True, slots=True)
class Careful:
    """A record that computes something."""

    size: int

    def __post_init__(self):
        assert self.size


def test_a_record_that_checks_itself_is_not_copied_behind_its_back():
    with pytest.raises(TypeError, match="made with care"):
        changed(Careful(1), size=0)
