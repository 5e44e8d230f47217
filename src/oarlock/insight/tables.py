"""Tables of text, for a terminal or a mail."""

from collections.abc import Sequence


def table_lines(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> list[str]:
    """Lay out a table with two spaces before it; the first `left` columns are flush left, the others right."""
    everything = [head, *rows]
    widths = [max(len(row[place]) for row in everything) for place in range(len(head))]
    return [
        "  "
        + "  ".join(
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in everything
    ]
