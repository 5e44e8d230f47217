"""Modes of a terminal, by name: which keys erase, interrupt or stop, and what is echoed or translated.

A user who set them on the login host expects them in the job, as with ssh. Sizes and speeds are not among them.
"""

from __future__ import annotations

import termios

_CHARACTERS = (
    "VINTR", "VQUIT", "VERASE", "VKILL", "VEOF", "VEOL", "VEOL2", "VSTART", "VSTOP", "VSUSP", "VREPRINT", "VWERASE",
    "VLNEXT", "VDISCARD",
)  # fmt: skip
_IFLAG, _OFLAG, _LFLAG, _CC = 0, 1, 3, 6  # places in what tcgetattr returns
_FLAGS = {
    _IFLAG: (
        "IGNPAR", "PARMRK", "INPCK", "ISTRIP", "INLCR", "IGNCR", "ICRNL", "IUCLC", "IXON", "IXANY", "IXOFF", "IMAXBEL",
        "IUTF8",
    ),
    _OFLAG: ("OPOST", "OLCUC", "ONLCR", "OCRNL", "ONOCR", "ONLRET"),
    _LFLAG: (
        "ISIG", "ICANON", "XCASE", "ECHO", "ECHOE", "ECHOK", "ECHONL", "NOFLSH", "TOSTOP", "IEXTEN", "ECHOCTL",
        "ECHOKE",
    ),
}  # fmt: skip
_IUTF8 = 0o40000  # of termios(3): a backspace erases a whole character; Python has no name for it
_UTF8 = {"IUTF8": 1}

MOST_MODES = 64
"""Modes that a request may name; those that a system does not have are passed over."""


def _bit(name: str) -> int:
    """Return the bit of a flag, 0 where this system does not have it."""
    return int(getattr(termios, name, _IUTF8 if name == "IUTF8" else 0))


def read_modes(fd: int) -> dict[str, int]:
    """Return the modes of a terminal: characters by their code, flags as 0 or 1."""
    attributes = termios.tcgetattr(fd)
    modes = {name: int(bool(attributes[at] & _bit(name))) for at, names in _FLAGS.items() for name in names}
    for name in _CHARACTERS:
        place = getattr(termios, name, None)
        if place is not None:
            modes[name] = ord(attributes[_CC][place])
    return modes


def set_modes(fd: int, modes: dict[str, int]) -> None:
    """Set the modes of a new terminal; those that are not named stay, and text is UTF-8 unless they say otherwise."""
    wanted = {**_UTF8, **modes}
    attributes = termios.tcgetattr(fd)
    for at, names in _FLAGS.items():
        for name in names:
            if name in wanted:
                attributes[at] = attributes[at] | _bit(name) if wanted[name] else attributes[at] & ~_bit(name)
    for name in _CHARACTERS:
        place = getattr(termios, name, None)
        if place is not None and name in wanted:
            attributes[_CC][place] = bytes([wanted[name]])
    termios.tcsetattr(fd, termios.TCSANOW, attributes)


def are_modes(value: object) -> bool:
    """Return whether a value of a request could be modes of a terminal."""
    return (
        isinstance(value, dict)
        and len(value) <= MOST_MODES
        and all(isinstance(name, str) and type(code) is int and 0 <= code <= 255 for name, code in value.items())
    )
