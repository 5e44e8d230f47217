"""The fair queue: a limit only when others wait."""

import asyncio

from oarlock.web import dispatch
from oarlock.web.concurrency import FairQueue


async def _order(slots: int, asked: str) -> str:
    """Let the users named by letters ask in this order while one turn is held; give the order in which they got it."""
    queue, done = FairQueue(slots), []

    async def ask(user: str) -> None:
        async with queue.slot(user):
            done.append(user)
            await asyncio.sleep(0)

    async with queue.slot("holder"):
        waiting = [asyncio.create_task(ask(user)) for user in asked]
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    return "".join(done)


def test_users_take_turns_however_much_one_of_them_asks():
    assert asyncio.run(_order(1, "aaaaabbc")) == "abcabaaa"


def test_nobody_waits_while_turns_are_free():
    assert asyncio.run(_order(9, "aaaaabbc")) == "aaaaabbc"


def test_a_turn_is_not_lost_when_the_one_it_goes_to_has_left():
    async def story() -> str:
        queue = FairQueue(1)
        async with queue.slot("a"):
            leaving = asyncio.create_task(queue.slot("b").__aenter__())
            await asyncio.sleep(0)
        leaving.cancel()  # the turn was given in the same moment
        await asyncio.gather(leaving, return_exceptions=True)
        async with asyncio.timeout(1), queue.slot("c"):
            return "c has it"

    assert asyncio.run(story()) == "c has it"


def test_who_leaves_while_waiting_is_passed_over():
    async def story() -> str:
        queue, done = FairQueue(1), []

        async def ask(user: str) -> None:
            async with queue.slot(user):
                done.append(user)

        async with queue.slot("holder"):
            waiting = [asyncio.create_task(ask(user)) for user in "abc"]
            await asyncio.sleep(0)
            waiting[1].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return "".join(done)

    assert asyncio.run(story()) == "ac"


def test_one_user_has_so_many_turns_and_others_find_the_rest_free():
    async def story() -> str:
        queue, done = FairQueue(4, most_of_one=2), []
        leave = asyncio.Event()

        async def ask(user: str) -> None:
            async with queue.slot(user):
                done.append(user)
                await leave.wait()

        tasks = [asyncio.create_task(ask(user)) for user in "aaaab"]
        await asyncio.sleep(0)
        at_once = "".join(done)
        leave.set()
        await asyncio.gather(*tasks)
        return f"{at_once}, then {''.join(done[len(at_once) :])}"

    assert asyncio.run(story()) == "aab, then aa"


def test_who_is_alone_has_more_slots_until_somebody_else_asks():
    async def run():
        queue = FairQueue(8, 2, alone=4)
        held = [await _enter(queue, "ada") for _ in range(4)]
        fifth = asyncio.ensure_future(_enter(queue, "ada"))
        await asyncio.sleep(0)
        assert not fifth.done()  # a user alone has `alone`, not all
        bob = await _enter(queue, "bob")
        await held.pop().__aexit__(None, None, None)
        await asyncio.sleep(0)
        assert not fifth.done()  # three are held, and somebody else is there: two are the most
        for slot in [bob, *held]:
            await slot.__aexit__(None, None, None)
        await (await fifth).__aexit__(None, None, None)

    asyncio.run(run())


async def _enter(queue, user):
    slot = queue.slot(user)
    await slot.__aenter__()
    return slot


def test_who_asks_too_often_waits_only_while_others_ask():
    async def story() -> list[object]:
        queue, done = FairQueue(8, 4, rate=20.0, burst=3.0), []

        async def ask(user: str) -> None:
            async with queue.slot(user):
                done.append(user)

        alone = [asyncio.create_task(ask("ada")) for _ in range(6)]
        await asyncio.gather(*alone)
        began = asyncio.get_running_loop().time()
        await ask("bob")  # has a burst of his own, and is there from now on
        shared = [asyncio.create_task(ask("ada")) for _ in range(4)]
        await asyncio.sleep(0)
        at_once = len(done) - 7
        await asyncio.gather(*shared)  # 4 at 20 a second: 0.2 s
        return [at_once, asyncio.get_running_loop().time() - began >= 0.15, len(done)]

    assert asyncio.run(story()) == [0, True, 11]


def test_one_user_has_at_most_a_quarter_of_the_slots_of_a_server():
    assert dispatch.MOST_OF_ONE < dispatch.MOST_ALONE <= dispatch.SLOTS // 4
