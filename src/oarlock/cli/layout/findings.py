"""Findings as lines of text."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MARKS = {"bad": "!!", "warn": " !"}


def finding_lines(findings: list[dict[str, Any]]) -> list[str]:
    """Lay out findings, each with its advice."""
    lines = []
    for finding in findings:
        lines.append(f"  {_MARKS[finding['severity']]} {finding['text']}  [{finding['id']}]")
        lines += [f"     {text}" for text in (finding["advice"], finding["line"]) if text]
    return lines
