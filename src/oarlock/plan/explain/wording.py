"""Descriptions of requests, for the sentences of `explain`."""

from itertools import pairwise

from oarlock.lang.where import show
from oarlock.model.condition import And, Column, Compare, Condition, Literal
from oarlock.model.request import ALL, BEST, BESTHALF, Level, ResourceGroup
from oarlock.model.snapshot import Shape

_NAMES = {"network_address": "node", "resource_id": "resource"}
_PLURALS = {"switch": "switches"}
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
_ORDINARY = frozenset(
    Compare("=", Column(name), Literal(value))
    for name, value in (("type", "default"), ("desktop_computing", "NO"), ("drain", "NO"), ("besteffort", "YES"))
)
"""Tests that the shipped admission rules add to every request; users need not read them."""


def describe_shape(shape: Shape) -> str:
    """Return a description of a shape: "4 nodes with 8 cores each of `cluster = 'a'`"."""
    groups = " and ".join(_group(group) for group in shape.groups)
    condition = user_condition(shape.where)
    return f"{groups} of `{show(condition)}`" if condition is not None else groups


def unit(level: Level, count: int) -> str:
    """Name a level's units in the right number."""
    name = _NAMES.get(level.name, level.name)
    return name if count == 1 else _PLURALS.get(name, f"{name}s")


def ordinal(number: int) -> str:
    """Write a small number as a word: the fourth; a large one in figures: the 14th."""
    if number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in {11, 12, 13} else "th"
    return f"{number}{ending}"


def _group(group: ResourceGroup) -> str:
    text = _level(group.levels[0])
    for above, level in pairwise(group.levels):
        text += f" with {_level(level)}{'' if above.count == 1 else ' each'}"
    condition = user_condition(group.where)
    return f"{text} of `{show(condition)}`" if condition is not None else text


def _level(level: Level) -> str:
    if level.count == ALL:
        return f"all {unit(level, 2)}"
    if level.count == BEST:
        return f"any {unit(level, 2)}"
    if level.count == BESTHALF:
        return f"half of the free {unit(level, 2)}"
    return f"{level.count} {unit(level, level.count)}"


def user_condition(condition: Condition | None) -> Condition | None:
    """Return the user's part of a condition, without the tests that admission rules add to every request."""
    if condition in _ORDINARY:
        return None
    if isinstance(condition, And):
        parts = tuple(kept for part in condition.parts if (kept := user_condition(part)) is not None)
        return parts[0] if len(parts) == 1 else And(parts) if parts else None
    return condition
