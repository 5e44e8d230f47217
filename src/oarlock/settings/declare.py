"""How a setting is declared."""

from dataclasses import dataclass, field
from typing import TypeVar

from oarlock.settings.kinds import Kind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Section:
    """A group of settings that belong together; calling it declares one of them."""

    title: str

    def __call__(self, kind: Kind[T], default: T, says: str) -> T:
        about = {"section": self.title, "kind": kind, "default": default, "says": says}
        return field(default_factory=lambda: default, metadata=about)
