"""How a setting is declared."""

from dataclasses import dataclass, field
from typing import TypeVar

from oarlock.settings.kinds import SettingKind

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SettingSection:
    """A group of settings that belong together; calling it declares one of them."""

    title: str

    def __call__(self, kind: SettingKind[T], default: T, says: str) -> T:
        about = {"section": self.title, "kind": kind, "default": default, "says": says}
        return field(default_factory=lambda: default, metadata=about)
