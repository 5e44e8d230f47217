"""The modes of a user's terminal, and of the terminal of a session that is to be like it."""

import contextlib
import os
import termios
from collections.abc import Iterator

import pytest

from oarlock.node.wire.terminal_modes import are_modes, read_modes, set_modes


@contextlib.contextmanager
def _terminal() -> Iterator[int]:
    ours, theirs = os.openpty()
    try:
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_terminal_gets_the_modes_of_another_one():
    with _terminal() as one, _terminal() as other:
        set_modes(one, {"VERASE": 8, "VINTR": 0, "ECHO": 0, "IXON": 0, "OPOST": 0, "TOSTOP": 1})
        assert read_modes(one) != read_modes(other)
        set_modes(other, read_modes(one))
        assert termios.tcgetattr(other) == termios.tcgetattr(one)


def test_a_new_terminal_is_utf_8_unless_the_user_s_is_not():
    with _terminal() as made:
        set_modes(made, {})
        assert read_modes(made)["IUTF8"] == 1
        set_modes(made, {"IUTF8": 0})
        assert read_modes(made)["IUTF8"] == 0


def test_modes_that_a_system_does_not_have_are_passed_over():
    with _terminal() as made:
        before = read_modes(made)
        set_modes(made, {"VSTATUS": 20, "B9600": 1, "TIOCSTI": 3, "VMIN": 0})
        assert read_modes(made) == {**before, "IUTF8": 1}


@pytest.mark.parametrize("value", [[], "ECHO", {"ECHO": True}, {"ECHO": 256}, {"ECHO": -1}, {3: 1}, {"ECHO": "1"}])
def test_what_are_no_modes_is_not_taken_for_them(value: object):
    assert not are_modes(value)
