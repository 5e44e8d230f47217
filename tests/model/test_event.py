"""Events: every type has a meaning, and what follows from it."""

import pytest

from oarlock.model.event import EVENTS, Event, EventType, Suspects, event_type
from oarlock.model.job import JobState


def test_every_type_has_a_meaning_and_is_stored_under_its_own_name():
    assert set(EVENTS) == set(EventType)
    assert all(kind.value == kind.name for kind in EventType)


@pytest.mark.manual(150)
@pytest.mark.parametrize(
    ("spelt", "meant"),
    [
        ("CANNOT_WRITE_NODE_FILE", EventType.CAN_NOT_WRITE_NODE_FILE),
        ("CHECKPOINT_SUCCESSFULL", EventType.CHECKPOINT_SUCCESS),
        ("WALLTIME", EventType.WALLTIME),
    ],
)
def test_the_spellings_of_oar_2_5_are_understood(spelt: str, meant: EventType):
    assert event_type(spelt) is meant


def test_a_name_that_is_no_event_is_refused():
    with pytest.raises(ValueError, match="LUNCH"):
        event_type("LUNCH")


@pytest.mark.parametrize(
    ("kind", "becomes", "suspects", "copy"),
    [
        (EventType.PING_CHECKER_NODE_SUSPECTED, JobState.ERROR, Suspects.NAMED, True),
        (EventType.PROLOGUE_ERROR, JobState.ERROR, Suspects.FIRST, True),
        (EventType.SSH_TRANSFER_TIMEOUT, JobState.ERROR, Suspects.FIRST, False),
        (EventType.EXTERMINATE_JOB, JobState.ERROR, Suspects.JOB, False),
        (EventType.EPILOGUE_ERROR, JobState.TERMINATED, Suspects.FIRST, False),
        (EventType.CPUSET_CLEAN_ERROR, JobState.TERMINATED, Suspects.NAMED, False),
        (EventType.WALLTIME, None, Suspects.NONE, False),
    ],
)
def test_what_follows_from_an_event(kind: EventType, becomes: JobState | None, suspects: Suspects, copy: bool):
    meaning = EVENTS[kind]
    assert (meaning.becomes, meaning.suspects, meaning.copy) == (becomes, suspects, copy)


def test_whatever_changes_a_job_or_a_node_must_be_looked_at():
    for kind, meaning in EVENTS.items():
        if meaning.becomes or meaning.suspects is not Suspects.NONE or meaning.stops_queues:
            assert Event(kind, 1, "").to_check
    assert not Event(EventType.WALLTIME, 1, "").to_check
