"""Threads for readers: users share them by CPU time, and nobody is limited while nobody else has work."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest

from oarlock.server.database_access import BURST_SECONDS, MOST_OF_ONE, THREADS, ReaderPool
from tests.bed import run_async


class Hand:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


class Bench:
    """A pool, and questions that end when they are told to; remembers the order in which they began."""

    def __init__(self) -> None:
        self.clock = Hand()
        self.pool = ReaderPool(self.clock)
        self.began: list[str] = []
        self.leave = threading.Event()

    def ask(self, user: str, key: object = None, work: Callable[[], object] | None = None) -> "asyncio.Task[object]":
        def wait() -> str:
            self.began.append(user)
            assert self.leave.wait(20)
            return user

        return asyncio.create_task(self.pool.run(user, work or wait, key))

    async def has_begun(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.began) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@pytest.fixture
def bench():
    made = Bench()
    yield made
    made.leave.set()
    made.pool.close()


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@run_async
async def test_one_user_leaves_threads_to_others(bench: Bench):
    tasks = [bench.ask("ada") for _ in range(THREADS + 3)] + [bench.ask("bob")]
    await bench.has_begun(MOST_OF_ONE + 1)
    assert sorted(bench.began) == ["ada"] * MOST_OF_ONE + ["bob"]
    bench.leave.set()
    assert await asyncio.gather(*tasks) == ["ada"] * (THREADS + 3) + ["bob"]


@run_async
async def test_users_who_wait_take_turns(bench: Bench):
    first_leaves, order = threading.Event(), []
    first = bench.ask("first", work=lambda: first_leaves.wait(20))
    holders = [bench.ask(f"holder{n}") for n in range(THREADS - 1)]
    await bench.has_begun(THREADS - 1)
    waiting = [bench.ask(user, work=lambda user=user: order.append(user)) for user in "aaabbc"]
    await asyncio.sleep(0)
    first_leaves.set()
    await asyncio.gather(first, *waiting)
    assert "".join(order) == "abcaba"
    bench.leave.set()
    await asyncio.gather(*holders)


@run_async
async def test_who_is_over_budget_waits_while_others_have_work_and_not_else(bench: Bench):
    burnt = bench.ask("ada", work=lambda: burn(0.05))
    await burnt
    reader = bench.pool._readers["ada"]
    reader.tokens = -1.0  # as if it had read for seconds
    assert await bench.ask("ada", work=lambda: "alone") == "alone"
    bench.pool.note()  # the server has work
    reader.tokens = -1.0
    slow = bench.ask("ada", work=lambda: "later")
    assert await bench.ask("bob", work=lambda: "at once") == "at once"
    assert not slow.done()
    bench.clock.at += 10.0  # its budget is full again, and nobody has work
    assert await slow == "later"


@run_async
async def test_what_a_question_took_is_charged_also_when_it_fails(bench: Bench):
    def fail() -> None:
        burn(0.05)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await bench.ask("ada", work=fail)
    assert bench.pool._readers["ada"].tokens < BURST_SECONDS - 0.04


@run_async
async def test_those_who_wait_with_the_same_key_share_one_answer(bench: Bench):
    holders = [bench.ask(f"holder{n}") for n in range(THREADS)]
    await bench.has_begun(THREADS)
    ran: list[int] = []

    def count() -> int:
        ran.append(1)
        return len(ran)

    same = [bench.ask(user, key="list", work=count) for user in "aaabbc"]
    other = bench.ask("d", key="other list", work=lambda: "other")
    await asyncio.sleep(0)
    bench.leave.set()
    await asyncio.gather(*holders)
    assert await asyncio.gather(*same) == [1] * 6
    assert await other == "other"


@run_async
async def test_an_answer_is_never_older_than_the_question(bench: Bench):
    first = bench.ask("ada", key="list")
    await bench.has_begun(1)
    second = bench.ask("ada", key="list", work=lambda: "read anew")
    assert await second == "read anew"
    assert not first.done()


@run_async
async def test_a_turn_is_not_lost_when_the_one_it_goes_to_has_left(bench: Bench):
    holders = [bench.ask(f"holder{n}") for n in range(THREADS)]
    await bench.has_begun(THREADS)
    leaving = bench.ask("a", key="list")
    staying = bench.ask("b", key="list", work=lambda: "b has it")
    await asyncio.sleep(0)
    leaving.cancel()
    bench.leave.set()
    assert await staying == "b has it"
    await asyncio.gather(*holders)
    assert bench.pool._free == THREADS


def test_others_have_work_for_a_second(bench: Bench):
    assert not bench.pool.others_have_work("ada")
    bench.pool.note("ada")
    assert not bench.pool.others_have_work("ada")
    bench.pool.note()  # the server itself
    bench.pool.note("ada")
    assert bench.pool.others_have_work("ada")
    bench.clock.at += 1.5
    assert not bench.pool.others_have_work("ada")
