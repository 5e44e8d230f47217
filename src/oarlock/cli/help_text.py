"""What `--help` prints, made from the same table that is parsed."""

from __future__ import annotations

from textwrap import wrap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import CommandOption, CommandOptions

_INDENT = 30
_WIDTH = 100


def helped(options: CommandOptions) -> str:
    """Explain a command: how it is called, what it does, its options."""
    usage = [f"{'Usage:' if at == 0 else '      '} {options.command} {line}" for at, line in enumerate(options.usage)]
    lines = [line for option in options.all for line in _explained(option)]
    return "\n".join([*usage, "", options.summary, "", "Options:", *lines, ""])


def _explained(option: CommandOption) -> list[str]:
    left = f"  {option.spelled()}" if len(option.names[0]) == 2 else f"      {option.spelled()}"
    says = option.says + ("; may be given several times" if option.many else "")
    lines = wrap(says, _WIDTH - _INDENT)
    if len(left) > _INDENT - 2:
        return [left, *(f"{'':{_INDENT}}{line}" for line in lines)]
    return [f"{left:{_INDENT}}{lines[0]}", *(f"{'':{_INDENT}}{line}" for line in lines[1:])]
