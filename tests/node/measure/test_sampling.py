"""Samples are taken in a thread of their own, and nobody waits for them."""

import re
import threading
import time

import pytest

from oarlock.node.measure.layout import CgroupIdentity
from oarlock.node.measure.sampler import Reading, Sample
from oarlock.node.measure.stream import MeasureChange, SamplingThread, parse_change
from oarlock.node.measure.wire import ReceivedSample, SampleDecoder, decode_sample
from oarlock.node.sources.assemble import ALL
from oarlock.node.wire.messages import NodeRequestRefused
from oarlock.settings.kinds import SAMPLE_SOURCES
from tests.waiting import wait_until

SAMPLE = Sample(
    5.0, {("oarlock", "n", "7"): Reading(CgroupIdentity("oarlock", "7", "ada"), {"cpus": 2.0})}, {"jobs": 1.0}
)


class Canned:
    """A sampler that waits until it may give its sample; `None` makes it fail."""

    def __init__(self, sample: Sample | None = SAMPLE) -> None:
        self.may, self.given = threading.Event(), sample

    def sample(self, _now: float) -> Sample:
        assert self.may.wait(20)
        assert self.given is not None
        return self.given


def _taken(measuring: SamplingThread) -> bytes:
    found = []
    wait_until(lambda: found.append(measuring.take()) or found[-1], what="a sample")
    return found[-1]


def test_a_sampler_that_hangs_costs_samples_and_never_time():
    sampler = Canned()
    measuring = SamplingThread(0.1, lambda: sampler)
    begin = time.monotonic()
    assert [measuring.take() for _ in range(20)] == [b""] * 20
    assert time.monotonic() - begin < 1
    assert measuring.due() > begin
    sampler.may.set()
    assert decode_sample(_taken(measuring)) == ReceivedSample(5.0, {"jobs": 1.0}, {7: {"cpus": 2.0}})


def test_a_sample_that_fails_is_left_out_and_the_next_one_is_taken(caplog):
    made = Canned(None)
    made.may.set()
    measuring = SamplingThread(0.1, lambda: made)
    wait_until(lambda: measuring.take() == b"" and "a sample failed" in caplog.text, what="the failure")
    made.given = SAMPLE
    assert decode_sample(_taken(measuring)).at == 5.0


def test_after_a_sample_that_was_not_sent_the_next_one_brings_its_names():
    made = Canned()
    made.may.set()
    measuring, decoder = SamplingThread(0.05, lambda: made), SampleDecoder()
    _taken(measuring)
    measuring.dropped()
    assert decoder.decode(_taken(measuring)).jobs == {7: {"cpus": 2.0}}
    assert decoder.decode(_taken(measuring)).jobs == {7: {"cpus": 2.0}}


def test_without_jobs_samples_are_taken_less_often_until_a_job_comes():
    made = Canned(SAMPLE._replace(jobs={}))
    made.may.set()
    measuring = SamplingThread(0.1, lambda: made, idle_period=60)
    _taken(measuring)
    assert measuring.due() - time.monotonic() > 50
    measuring.job_comes()
    assert measuring.due() - time.monotonic() < 1
    made.given = SAMPLE
    _taken(measuring)
    assert measuring.due() - time.monotonic() < 1


def test_a_change_of_how_an_idle_node_measures_is_followed():
    made = Switching()
    made.given = SAMPLE._replace(jobs={})
    measuring = SamplingThread(0.1, lambda: made, idle_period=60)
    measuring.change(MeasureChange(period=0.05, seconds=60), [])
    _taken(measuring)
    assert measuring.due() - time.monotonic() < 1


def test_a_period_of_0_measures_nothing():
    assert SamplingThread(0, Canned).due() == float("inf")


class Switching(Canned):
    """A sampler that notes which sources it is switched to."""

    def __init__(self) -> None:
        super().__init__()
        self.may.set()
        self.on: list[str] = []

    def switch(self, source: object) -> None:
        self.on.append(source.name)

    switch_node = switch

    def switch_off(self, name: str) -> None:
        self.on.append(f"-{name}")


def test_a_change_is_over_when_its_jobs_are():
    made = Switching()
    measuring = SamplingThread(0.05, lambda: made, ["cores"])
    _taken(measuring)
    assert made.on == ["cores"]
    measuring.change(MeasureChange(period=0.01, sources=("temperature", "-disk")), [7])
    _taken(measuring)
    assert made.on[1:] == ["-disk", "temperature"]
    made.given = SAMPLE._replace(jobs={})
    wait_until(lambda: measuring.take() and "-temperature" in made.on, what="the end of the change")
    assert made.on[3:] == ["-temperature", "disk"]


def test_a_change_ends_with_its_time_and_a_period_of_0_stays():
    made = Switching()
    measuring = SamplingThread(0, lambda: made)
    measuring.change(MeasureChange(period=0.01, seconds=0.2), [])
    _taken(measuring)
    wait_until(lambda: measuring.take() is None or measuring.due() == float("inf"), what="the end of the change")
    assert made.on == []


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"sources": ["rapel"]}, "there is no source `rapel`"),
        ({"perf_events": ["cycles!"]}, "there is no event `cycles!`"),
        ({"period": -1}, "period is -1, not a number of seconds"),
        ({"seconds": "ten"}, "seconds is 'ten', not a number of seconds"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(body, says):
    with pytest.raises(NodeRequestRefused, match=re.escape(says)):
        parse_change(body)


def test_every_source_that_a_node_can_have_may_stand_in_the_settings():
    assert {*SAMPLE_SOURCES, "redfish"} == set(ALL)  # that one needs an address and a password
