"""Numbers as people write them, in English and in French."""

from collections.abc import Mapping

from oarlock.insight.facts import FACTS, FactKind, FactValue
from oarlock.lang import duration

LANGUAGES = ("en", "fr")

_UNITS = {"en": ("B", "KiB", "MiB", "GiB", "TiB", "PiB"), "fr": ("o", "Kio", "Mio", "Gio", "Tio", "Pio")}


def write_fact(name: str, value: FactValue, language: str = "en") -> str:
    """Write the value of a fact in the unit of its kind; what is unknown is a dash."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    text = _write_number(FACTS[name].kind, value, language)
    return text.replace(".", ",") if language == "fr" else text


def write_all(facts: Mapping[str, FactValue], language: str = "en") -> dict[str, str]:
    """Write every fact, for the texts of findings."""
    return {name: write_fact(name, value, language) for name, value in facts.items()}


def write_bytes(value: float, language: str = "en") -> str:
    """Write a number of bytes with three digits or so: `3.1 GiB`."""
    units = _UNITS[language]
    place = 0
    while value >= 1024 and place < len(units) - 1:
        value, place = value / 1024, place + 1
    return f"{value:.0f} {units[place]}" if place == 0 or value >= 100 else f"{value:.1f} {units[place]}"


def write_energy(joules: float) -> str:
    """Write an amount of energy in the unit in which it has few digits, as the commands do."""
    if joules >= 360_000:
        return f"{joules / 3_600_000:.2f} kWh"
    return f"{joules / 3600:.1f} Wh" if joules >= 3600 else f"{joules:.0f} J"


def _write_number(kind: FactKind, value: float, language: str) -> str:
    match kind:
        case FactKind.SHARE:
            # "0 %" would say that nothing happened where little did.
            return f"{value * 100:.1f} %" if 0 < value < 0.1 else f"{value * 100:.0f} %"
        case FactKind.SECONDS:
            return duration.show(int(value))
        case FactKind.BYTES:
            return write_bytes(value, language)
        case FactKind.JOULES:
            return write_energy(value)
        case _:
            return f"{value:.0f}" if value == int(value) or value >= 100 else f"{value:.1f}"
