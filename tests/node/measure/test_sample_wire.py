"""The wire form of samples: what is sent arrives, once, and nothing else is believed."""

import contextlib
import os
import random
import struct
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oarlock.node.measure import wire
from oarlock.node.measure.wire import (
    ReceivedSample,
    RepeatedSample,
    SampleDecoder,
    SampleEncoder,
    UnreadableSample,
    decode_sample,
    encode_sample,
    read_head,
    renumber,
)
from oarlock.node.sources.probe import series
from tests.old_samples import encode_version_1

BOOT = "0d5a6a4e-7a43-4d6d-9d53-6f9a2a3a9a11"
NAMES = st.sampled_from(["a", "b_total", *(series("c", executable=text) for text in ("x", 'say "hi"', "é\\\n", ""))])
VALUES = st.dictionaries(NAMES, st.floats(allow_nan=False, allow_infinity=False), max_size=6)
SAMPLES = st.tuples(st.floats(0, 2e9), VALUES, st.dictionaries(st.integers(1, 2**31), VALUES, max_size=4))


@given(SAMPLES)
def test_a_sample_of_either_version_arrives_as_it_was_taken(sample):
    for encode in (encode_sample, encode_version_1):
        assert decode_sample(encode(*sample)) == ReceivedSample(*sample)


@settings(max_examples=40)
@given(st.lists(SAMPLES, min_size=1, max_size=6), st.data())
def test_a_stream_of_samples_arrives_whatever_is_dropped_and_repeated(samples, data):
    """Dropped frames are noticed by their sender; those that come twice count once."""
    encoder, decoder = SampleEncoder(BOOT), SampleDecoder()
    for sample in samples:
        frame = encoder.encode(*sample)
        if data.draw(st.booleans(), label="dropped"):
            encoder.forget_tables()
            continue
        assert decoder.decode(frame) == ReceivedSample(*sample)
        with pytest.raises(RepeatedSample):
            decoder.decode(frame)


@settings(max_examples=40)
@given(st.lists(SAMPLES, min_size=2, max_size=5), st.integers(1, 4))
def test_a_decoder_that_joins_later_learns_the_tables_first(samples, later):
    encoder, first, second = SampleEncoder(BOOT), SampleDecoder(), SampleDecoder()
    for place, sample in enumerate(samples):
        frame = encoder.encode(*sample)
        if place == later:
            second.parse(first.tables_frame())
        assert first.decode(frame) == ReceivedSample(*sample)
        if place >= later:
            assert second.decode(frame) == ReceivedSample(*sample)


def test_names_travel_once_and_values_take_eight_bytes_each():
    encoder = SampleEncoder(BOOT)
    jobs = {job: {f"metric_{n}": float(n) for n in range(100)} for job in (1, 2, 3)}
    first, second = encoder.encode(1.0, {}, jobs), encoder.encode(2.0, {}, jobs)
    assert len(second) < 300 * 8.4
    assert len(first) - len(second) < 1200  # one table for three jobs


def test_a_frame_that_is_late_is_refused_and_a_reboot_begins_anew():
    encoder, decoder = SampleEncoder(BOOT, first=7), SampleDecoder()
    frames = [encoder.encode(float(n), {"jobs": 1.0}, {}) for n in range(3)]
    decoder.decode(frames[0])
    decoder.decode(frames[2])
    with pytest.raises(RepeatedSample, match="sample 8 came after 9"):
        decoder.decode(frames[1])
    assert decoder.decode(SampleEncoder(BOOT.replace("0", "1")).encode(9.0, {"jobs": 2.0}, {})).node == {"jobs": 2.0}


def test_tables_are_sent_again_from_time_to_time(monkeypatch):
    """A receiver that lost a table by a fault of its own is whole again after a while."""
    monkeypatch.setattr(wire, "_AFRESH", 3)
    encoder, decoder = SampleEncoder(BOOT), SampleDecoder()
    frames = [encoder.encode(float(n), {"jobs": float(n)}, {}) for n in range(5)]
    with pytest.raises(UnreadableSample):
        decoder.decode(frames[1])
    assert [decoder.decode(frame).at for frame in frames[3:]] == [3.0, 4.0]


@pytest.mark.parametrize("encode", [encode_sample, encode_version_1])
@pytest.mark.parametrize("name", ['x{a="1"}\nforged 1', "x 1", 'x{a="1', "x{}", 'x{a="\\q"}'])
def test_a_name_that_would_forge_lines_is_refused(name, encode):
    with pytest.raises(UnreadableSample):
        decode_sample(encode(1.0, {name: 1.0}, {}))


def test_absent_and_not_a_number_stay_absent():
    for encode in (encode_sample, encode_version_1):
        received = decode_sample(encode(1.0, {"a": float("nan"), "b": 1.0}, {7: {}, 8: {"a": float("inf")}}))
        assert received == ReceivedSample(1.0, {"b": 1.0}, {7: {}, 8: {}})


@pytest.mark.parametrize(
    ("place", "number"),
    [(36, 1 << 20), (40, 1 << 30), (44, 5), (48, 1 << 30), (56, (1 << 64) - 3), (64, 9), (68, 1 << 31)],
    ids=["tables", "subjects", "table number", "table length", "a negative job", "unknown table", "count"],
)
def test_a_number_that_is_not_so_is_refused(place, number):
    frame = bytearray(encode_sample(1.0, {"jobs": 1.0}, {}))
    struct.pack_into("<Q" if number >> 32 else "<I", frame, place, number)
    with pytest.raises(UnreadableSample):
        decode_sample(bytes(frame))


def test_too_many_values_are_refused(monkeypatch):
    monkeypatch.setattr(wire, "MOST_SERIES", 3)
    for encode in (encode_sample, encode_version_1):
        with pytest.raises(UnreadableSample, match="too many"):
            decode_sample(encode(1.0, {"a": 1.0, "b": 1.0}, {7: {"a": 1.0, "b": 1.0}}))


def test_whatever_comes_is_a_sample_or_refused_and_harms_no_later_one():
    """Frames with bytes changed, cut and joined for half a second: a decoder reads the next whole one."""
    dice, end = random.Random(os.environ.get("PYTEST_SEED", "wire")), time.monotonic() + 0.5
    jobs = {7: {"cpus": 2.0, 'x{a="1"}': 3.0}, 8: {"cpus": 1.0}}
    decoder = SampleDecoder()
    while time.monotonic() < end:
        frame = bytearray(dice.choice([encode_sample, encode_version_1])(1.0, {"jobs": 1.0}, jobs))
        for _ in range(dice.randrange(1, 6)):
            frame[dice.randrange(len(frame))] = dice.randrange(256)
        cut = frame[: dice.randrange(len(frame) + 1)] + dice.randbytes(dice.randrange(3))
        with contextlib.suppress(UnreadableSample):
            decoder.decode(bytes(dice.choice([cut, frame])))
    boot = dice.randbytes(16).hex()
    assert decoder.decode(SampleEncoder(boot).encode(2.0, {}, jobs)) == ReceivedSample(2.0, {}, jobs)


@settings(max_examples=60)
@given(SAMPLES, st.data())
def test_other_numbers_for_jobs_change_nothing_else(sample, data):
    at, node, jobs = sample
    numbers = {job: 10**12 + place for place, job in enumerate(jobs, 1)}
    frame = SampleEncoder(BOOT, first=7).encode(at, node, jobs)
    renumbered, ours = renumber(frame, numbers)
    assert decode_sample(renumbered) == ReceivedSample(at, node, {numbers[job]: jobs[job] for job in jobs})
    assert (ours, read_head(renumbered)) == (list(numbers.values()), read_head(frame))
    for torn in (frame[: data.draw(st.integers(0, len(frame)))], data.draw(st.binary(max_size=80)), wire.MAGIC * 20):
        with contextlib.suppress(UnreadableSample):
            read_head(torn)
            renumber(torn, numbers)
    if jobs:
        with pytest.raises(UnreadableSample, match="nothing was reported about job"):
            renumber(frame, {})
