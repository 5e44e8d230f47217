"""Frames: whatever way a stream is cut, the same messages come out; nonsense is refused at once."""

import os
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.node.wire.channel import (
    ANSWER,
    EVENT,
    LONGEST,
    RAW,
    REQUEST,
    BadFrame,
    ChannelClosed,
    Endpoint,
    Frame,
    FrameReader,
    encode_frame,
)

frames = st.lists(
    st.builds(Frame, st.sampled_from([REQUEST, ANSWER, EVENT, RAW]), st.integers(0, 2**32 - 1), st.binary(max_size=200))
)


@given(frames, st.data())
def test_the_way_a_stream_is_cut_does_not_matter(sent, data):
    stream = b"".join(encode_frame(*frame) for frame in sent)
    reader, got = FrameReader(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        got += reader.feed(stream[:size])
        stream = stream[size:]
    assert got == sent


@given(st.binary(min_size=9, max_size=100))
def test_bytes_are_frames_or_refused_and_never_anything_else(noise):
    try:
        found = FrameReader().feed(noise)
    except BadFrame:
        return
    assert b"".join(encode_frame(*frame) for frame in found) == noise[: sum(9 + len(frame.data) for frame in found)]


def test_a_frame_that_announces_too_much_is_refused_before_it_comes():
    with pytest.raises(BadFrame, match=f"{LONGEST + 1} bytes"):
        FrameReader().feed(struct.pack(">IBI", LONGEST + 1, EVENT, 0))


@pytest.mark.parametrize("data", [b"[1]", b"", b"{", b"[" * 100_000])
def test_a_body_that_is_no_object_is_refused(data):
    with pytest.raises(BadFrame):
        Frame(EVENT, 0, data).body()


def test_what_the_other_end_does_not_read_waits_in_memory():
    reading, writing = os.pipe()
    endpoint = Endpoint(os.dup(reading), writing)
    endpoint.send(RAW, 1, b"x" * 1_000_000)
    assert endpoint.pending > 0
    reader, got = FrameReader(), []
    while not got:
        got = reader.feed(os.read(reading, 1 << 16))
        endpoint.flush()
    assert (got, endpoint.pending) == ([Frame(RAW, 1, b"x" * 1_000_000)], 0)
    os.close(reading)
    endpoint.close()


def test_the_end_of_a_stream_is_told():
    reading, writing = os.pipe()
    os.close(writing)
    other_reading, other_writing = os.pipe()
    endpoint = Endpoint(reading, other_writing)
    with pytest.raises(ChannelClosed):
        endpoint.receive()
    os.close(other_reading)
    with pytest.raises(ChannelClosed):
        endpoint.send(EVENT, 0, {})
    endpoint.close()


def test_what_is_queued_goes_out_with_the_next_flush_in_order():
    reading, writing = os.pipe()
    theirs, ours = Endpoint(reading, os.dup(reading)), Endpoint(os.dup(writing), writing)
    ours.queue(EVENT, 0, {"a": 1})
    assert (theirs.receive(), ours.pending > 0) == ([], True)
    ours.send(EVENT, 0, {"b": 2})
    assert [frame.body() for frame in theirs.receive()] == [{"a": 1}, {"b": 2}]
    assert ours.pending == 0
    for end in (ours, theirs):
        end.close()
