"""The streams of a session: whatever is cut off in between, every byte arrives once and in its order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.node.wire.stream import (
    CONTROL_ROOM,
    EXIT,
    LENGTH_BYTES,
    LONGEST_FRAME,
    PIECE,
    STDIN,
    STDOUT,
    WINDOW,
    ResumableReceiver,
    ResumableSender,
    StreamBroken,
    StreamMessage,
    acknowledged,
    decode_length,
    decode_size,
    encode_frame,
    encode_message,
    encode_size,
)


@given(
    st.lists(st.binary(max_size=300), max_size=20),
    st.lists(st.tuples(st.integers(1, 200), st.booleans()), min_size=1, max_size=40),
)
def test_what_is_sent_again_after_a_cut_arrives_once_and_in_order(pieces, steps):
    sender, receiver, messages = ResumableSender(), ResumableReceiver(), []
    for piece in pieces:
        sender.queue(encode_message(STDOUT, piece))
    for most, cut in steps:
        data = sender.take(most)
        if cut:  # what was on its way is lost
            sender.resume(receiver.received)
        else:
            messages += receiver.feed(data)
    while data := sender.take():
        messages += receiver.feed(data)
    assert messages == [StreamMessage(STDOUT, piece) for piece in pieces]


def test_a_sender_has_room_again_when_the_receiver_has_consumed():
    sender, receiver = ResumableSender(), ResumableReceiver()
    while sender.room >= PIECE + CONTROL_ROOM:
        sender.queue(encode_message(STDOUT, bytes(PIECE)))
    full = WINDOW - sender.room
    receiver.feed(sender.take())
    assert receiver.acknowledge(full) == b""  # all of it still waits for its reader
    sender.acknowledge(acknowledged(receiver.acknowledge()))
    assert (sender.room, sender.is_empty) == (WINDOW, True)


def test_little_is_acknowledged_only_when_it_is_asked_for():
    receiver = ResumableReceiver()
    receiver.feed(encode_message(STDIN, b"k"))
    assert (receiver.acknowledge(), acknowledged(receiver.acknowledge(at_once=True))) == (b"", 6)


@pytest.mark.parametrize("total", [1, WINDOW, 1 << 60])
def test_an_acknowledgement_of_what_was_never_sent_is_refused(total):
    with pytest.raises(StreamBroken):
        ResumableSender().acknowledge(total)


def test_a_stream_cannot_be_resumed_where_nothing_is_kept_any_more():
    sender = ResumableSender()
    sender.queue(b"abcdef")
    sender.take()
    sender.acknowledge(4)
    for received in (3, 7):
        with pytest.raises(StreamBroken):
            sender.resume(received)
    sender.resume(5)
    assert sender.take() == b"f"


@pytest.mark.parametrize("data", [bytes([STDIN]) + b"\xff\xff\xff\xff", bytes([EXIT + 1, 0, 0, 0, 0])])
def test_a_message_that_no_window_holds_or_of_an_unknown_kind_is_refused(data):
    with pytest.raises(StreamBroken):
        ResumableReceiver().feed(data)


def test_a_frame_longer_than_the_window_is_refused_before_it_is_read():
    assert decode_length(encode_frame(b"abc")[:LENGTH_BYTES]) == 3
    for length in (0, LONGEST_FRAME + 1, 0xFFFFFFFF):
        with pytest.raises(StreamBroken):
            decode_length(length.to_bytes(LENGTH_BYTES, "big"))


def test_the_size_of_a_terminal_travels():
    assert decode_size(encode_size(24, 132)) == (24, 132)
    with pytest.raises(StreamBroken):
        decode_size(b"\0")
