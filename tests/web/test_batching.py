"""Calls that arrive while one is under way are done together."""

import asyncio
from collections.abc import Sequence

import pytest

from oarlock.web.concurrency import LARGEST_GROUP, Batcher


class Works:
    """Doubles numbers; refuses 13; remembers the groups it was given."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.go = asyncio.Event()

    async def __call__(self, brought: Sequence[int]) -> list[int | Exception]:
        self.groups.append(list(brought))
        await self.go.wait()
        return [ValueError(one) if one == 13 else 2 * one for one in brought]


def test_the_first_goes_alone_and_the_rest_together():
    async def story() -> tuple[list[int], list[list[int]]]:
        works = Works()
        double = Batcher(works)
        calls = [asyncio.create_task(double(1))]
        await asyncio.sleep(0)
        calls += [asyncio.create_task(double(number)) for number in range(2, 6)]
        await asyncio.sleep(0)
        works.go.set()
        return await asyncio.gather(*calls), works.groups

    assert asyncio.run(story()) == ([2, 4, 6, 8, 10], [[1], [2, 3, 4, 5]])


def test_a_refusal_is_one_callers_own():
    async def story() -> list[object]:
        works = Works()
        works.go.set()
        double = Batcher(works)
        return await asyncio.gather(*(double(number) for number in (12, 13, 14)), return_exceptions=True)

    twelve, thirteen, fourteen = asyncio.run(story())
    assert (twelve, fourteen) == (24, 28)
    assert isinstance(thirteen, ValueError)


def test_what_fails_as_a_whole_fails_for_its_group_and_not_for_the_next():
    async def story() -> list[object]:
        async def work(brought: Sequence[int]) -> list[int | Exception]:
            await asyncio.sleep(0)
            if 13 in brought:
                raise KeyError("all")
            return list(brought)

        same = Batcher(work)
        first = await asyncio.gather(*(same(number) for number in (12, 13, 14)), return_exceptions=True)
        return [*map(type, first), await same(15)]

    assert asyncio.run(story()) == [int, KeyError, KeyError, 15]


def test_a_group_is_not_without_bound():
    async def story() -> list[int]:
        works = Works()
        double = Batcher(works)
        calls = [asyncio.create_task(double(number)) for number in range(14, 14 + 1 + 2 * LARGEST_GROUP)]
        await asyncio.sleep(0)
        works.go.set()
        await asyncio.gather(*calls)
        return [len(group) for group in works.groups]

    sizes = asyncio.run(story())
    assert sum(sizes) == 1 + 2 * LARGEST_GROUP
    assert max(sizes) == LARGEST_GROUP


def test_those_behind_a_caller_who_left_are_not_left_alone():
    async def story() -> int:
        works = Works()
        double = Batcher(works)
        leaving = asyncio.create_task(double(1))
        await asyncio.sleep(0)
        staying = asyncio.create_task(double(2))
        await asyncio.sleep(0)
        leaving.cancel()
        works.go.set()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        async with asyncio.timeout(5):
            return await staying

    assert asyncio.run(story()) == 4
