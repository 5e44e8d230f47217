"""Signals by number or by name. Commands load this: standard library only."""

import signal

SIGNALS = range(1, 65)


def signal_number(name: str) -> int | None:
    """Return the number of a signal, written as a number or a name (`10`, `USR1`, `SIGUSR1`); None: there is none."""
    if name.isdecimal() and name.isascii():
        return int(name) if len(name) <= 2 and int(name) in SIGNALS else None
    number = getattr(signal, f"SIG{name.upper().removeprefix('SIG')}", None)
    return int(number) if isinstance(number, signal.Signals) else None
