"""Cases taken from the tests of OAR, where the folder that holds them is there."""

import json
from pathlib import Path

import pytest

_FILE = Path(__file__).parents[3] / "shared" / "data" / "oar-cases.json"


def oar_cases(*kinds: str) -> list:
    """Give the cases of these kinds as parameters of a test; one that is skipped where there are none."""
    if not _FILE.exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason="../shared/data/oar-cases.json is not there"))]
    cases = json.loads(_FILE.read_text())["cases"]
    return [pytest.param(case, id=case["id"]) for case in cases if case["kind"] in kinds]
