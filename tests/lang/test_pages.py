"""The pages on requests and conditions say what is so: every example in them is tried."""

import re
from pathlib import Path

import pytest

from oarlock.lang import request, where
from oarlock.model.errors import OarlockError

PAGES = Path(__file__).parents[2] / "docs" / "using"
TYPES = {
    **dict.fromkeys(["mem", "cores", "core", "order", "load", "rack", "licence"], int),
    **dict.fromkeys(["gpu", "switch", "host", "network_address", "resource_id", "cputype", "owner", "type"], str),
}


def blocks(kind: str) -> list[str]:
    """Give what stands between the fences of this kind, in both pages."""
    text = "".join((PAGES / name).read_text() for name in ("requests.md", "conditions.md"))
    return re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def lines(kind: str) -> list[str]:
    return [line for block in blocks(kind) for line in block.splitlines()]


def try_request(text: str) -> None:
    request.check(request.parse([text]), TYPES)


def try_condition(text: str) -> None:
    where.check(where.parse(text), TYPES)


@pytest.mark.parametrize("text", lines("request"))
def test_every_request_of_the_pages_is_accepted(text):
    try_request(text)


@pytest.mark.parametrize("text", lines("condition"))
def test_every_condition_of_the_pages_is_accepted(text):
    try_condition(text)


@pytest.mark.parametrize(
    ("attempt", "block"),
    [
        *((try_request, block) for block in blocks("refused request")),
        *((try_condition, block) for block in blocks("refused condition")),
    ],
)
def test_every_refusal_of_the_pages_is_given_word_for_word(attempt, block):
    text, answer = block.split("\n", 1)
    with pytest.raises(OarlockError) as refusal:
        attempt(text)
    assert refusal.value.full_text() == answer.rstrip("\n")


def test_the_pages_have_examples_of_every_kind():
    kinds = ("request", "condition", "refused request", "refused condition")
    assert [bool(blocks(kind)) for kind in kinds] == [True] * 4
