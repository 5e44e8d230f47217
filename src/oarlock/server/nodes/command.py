"""How a line of Python is brought to run on a node."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """A command to which the loader's line is appended; `quoted` where a shell at the other end reads it.

    `installed`: the command starts a node program that is there already, and no line is appended.
    """

    command: tuple[str, ...]
    quoted: bool
    installed: bool = False

    def arguments(self, line: str) -> list[str]:
        """Return the whole argument list. The line holds no single quote, so that any shell leaves it alone."""
        if self.installed:
            return [*self.command]
        return [*self.command, f"'{line}'" if self.quoted else line]
