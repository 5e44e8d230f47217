"""The pages for administrators, read as what has to be typed."""

import re
from pathlib import Path

PAGES = Path(__file__).parents[1] / "docs/running-a-site"


def section(page: str, title: str) -> str:
    """Return the text of a section."""
    text = (PAGES / page).read_text()
    [found] = re.findall(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return str(found)


def typed_lines(page: str, title: str) -> list[str]:
    """Return the lines that a section of a page has to be typed."""
    return re.findall(r"^    (\S.*)$", section(page, title), re.MULTILINE)
