"""What OAR was seen to do, where the folder that tells it is there."""

import json
import shlex
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"

needs_golden = pytest.mark.skipif(not (DATA / "oar2-golden").exists(), reason="../shared/data/oar2-golden is not there")


def oar_cases(*kinds: str) -> list:
    """Give the cases of these kinds as parameters of a test; one that is skipped where there are none."""
    if not (DATA / "oar-cases.json").exists():
        return [pytest.param({}, marks=pytest.mark.skip(reason="../shared/data/oar-cases.json is not there"))]
    cases = json.loads((DATA / "oar-cases.json").read_text())["cases"]
    return [pytest.param(case, id=case["id"]) for case in cases if case["kind"] in kinds]


def golden_submissions() -> Iterator[tuple[str, list[str], str | None]]:
    """Give, for every `oarsub` that was tried on a real OAR 2.5, its file, its `-l` and its `-p`."""
    for file in sorted((DATA / "oar2-golden").glob("*.txt")):
        command = file.read_text().partition("\n")[0]
        if command.startswith("$ oarsub "):
            words = shlex.split(command)
            pairs = list(pairwise(words))
            yield file.stem, [value for option, value in pairs if option == "-l"], dict(pairs).get("-p")
