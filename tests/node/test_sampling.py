"""Samples on their way: what is packed comes out again, what is not a sample is refused, and nobody waits."""

import contextlib
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.node.measure.layout import CgroupIdentity
from oarlock.node.measure.sampler import Reading, Sample
from oarlock.node.measure.stream import ReceivedSample, SamplingThread, UnreadableSample, decode_sample, encode_sample
from oarlock.node.sources.metrics import series
from tests.waiting import wait_until

NAMES = st.builds(series, st.from_regex(r"[a-z_]{1,9}", fullmatch=True)) | st.builds(
    lambda name, label: series(name, executable=label), st.from_regex(r"[a-z_]{1,9}", fullmatch=True), st.text()
)
VALUES = st.dictionaries(NAMES, st.floats(allow_nan=False, allow_infinity=False))
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


@given(st.floats(0, 2e9), VALUES, st.dictionaries(st.integers(1, 2**31), VALUES))
def test_a_sample_arrives_as_it_was_taken(at, node, jobs):
    assert decode_sample(encode_sample(at, node, jobs)) == ReceivedSample(at, node, jobs)


@given(st.binary(max_size=200), st.integers(0, 200))
def test_whatever_is_no_sample_is_refused_and_nothing_else_happens(noise, at):
    data = encode_sample(1.0, {"jobs": 1.0}, {7: {"cpus": 2.0}})
    for sent in (noise, data[:at], data[:at] + noise, b"\x0a\x00\x00\x00" + noise):
        with contextlib.suppress(UnreadableSample):
            assert isinstance(decode_sample(sent), ReceivedSample)


@pytest.mark.parametrize("name", ['x{a="1"}\nforged 1', "x 1", 'x{a="1', "", "x{}", 'x{a="\\q"}'])
def test_a_name_that_would_forge_lines_is_refused(name):
    with pytest.raises(UnreadableSample):
        decode_sample(encode_sample(1.0, {name: 1.0}, {}))


def test_absent_and_not_a_number_stay_absent():
    found = decode_sample(encode_sample(1.0, {"a": float("nan"), "b": 1.0}, {7: {}, 8: {"a": float("inf")}}))
    assert found == ReceivedSample(1.0, {"b": 1.0}, {7: {}, 8: {}})


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


def test_a_period_of_0_measures_nothing():
    assert SamplingThread(0, Canned).due() == float("inf")
