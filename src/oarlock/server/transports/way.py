"""How a line of Python is brought to run on a node."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Way:
    """A command to which the loader's line is appended; `quoted` where a shell at the other end reads it."""

    command: tuple[str, ...]
    quoted: bool

    def arguments(self, line: str) -> list[str]:
        """Give the whole argument list. The line holds no single quote, so that any shell leaves it alone."""
        return [*self.command, f"'{line}'" if self.quoted else line]
