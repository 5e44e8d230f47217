"""Who has a connection to a node where there are more nodes than connections."""

import asyncio
from dataclasses import dataclass, field

import pytest

from oarlock.server.nodes.connection_slots import ConnectionSlots, Need
from tests.bed import run_async


@dataclass(eq=False)
class Holder:
    """A node that wants a connection for something."""

    name: str
    slots: ConnectionSlots
    left: list[str] = field(default_factory=list)
    need: Need = Need.NONE

    async def connect(self, *, patient: bool = False) -> None:
        await self.slots.acquire(self, patient=patient)
        self.slots.opened(self)

    async def leave(self) -> None:
        self.left.append(self.name)
        self.slots.leave(self)
        await asyncio.sleep(0)  # the process is ended
        self.slots.release()


def holders(count: int, *, places: int, stay: float = 60.0) -> list[Holder]:
    slots, left = ConnectionSlots(open_=places, stay=stay, retry=0.01), []
    return [Holder(f"n{number}", slots, left) for number in range(count)]


async def connect_all(*nodes: Holder) -> None:
    for node in nodes:
        await node.connect()


@run_async
async def test_the_connection_that_was_not_used_for_longest_is_left():
    a, b, c, d = holders(4, places=3)
    await connect_all(a, b, c)
    a.slots.note_use(a)
    await d.connect()
    assert a.left == ["n1"]


@run_async
async def test_nodes_without_jobs_are_left_before_those_with_jobs():
    a, b, c = holders(3, places=2)
    a.need = Need.REPORTS
    await connect_all(a, b, c)
    assert a.left == ["n1"]


@run_async
async def test_nodes_with_jobs_are_left_when_all_have_jobs():
    a, b, c = holders(3, places=2)
    a.need = b.need = Need.REPORTS
    await connect_all(a, b, c)
    assert a.left == ["n0"]


@run_async
async def test_no_connection_is_left_while_an_answer_is_awaited():
    a, b = holders(2, places=1)
    a.need = Need.REQUEST
    await a.connect()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await b.connect()
    a.need = Need.NONE
    await b.connect()
    assert a.left == ["n0"]


@run_async
async def test_a_node_that_comes_back_waits_until_others_had_their_time():
    a, b = holders(2, places=1)
    a.need = b.need = Need.REPORTS
    await a.connect()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await b.connect(patient=True)
    a, b = holders(2, places=1, stay=0.05)
    a.need = b.need = Need.REPORTS
    await a.connect()
    await b.connect(patient=True)
    assert a.left == ["n0"]


@run_async
async def test_a_node_that_is_needed_goes_before_those_that_come_back():
    a, back, needed = holders(3, places=1)
    a.need = Need.REQUEST
    await a.connect()
    tasks = [asyncio.create_task(back.connect(patient=True)), asyncio.create_task(needed.connect())]
    await asyncio.sleep(0.03)
    needed.need, a.need = Need.REQUEST, Need.NONE
    await tasks[1]
    assert not tasks[0].done()
    tasks[0].cancel()


@run_async
async def test_a_node_that_comes_back_is_needed_meanwhile_and_hurries():
    a, back = holders(2, places=1)
    a.need = Need.REPORTS
    await a.connect()
    task = asyncio.create_task(back.connect(patient=True))
    await asyncio.sleep(0.03)
    assert not task.done()
    back.slots.hurry(back)
    await task
    assert a.left == ["n0"]


@run_async
async def test_whoever_gives_up_waiting_takes_no_connection_along():
    a, b, c = holders(3, places=1)
    a.need = Need.REQUEST
    await a.connect()
    waiting = asyncio.create_task(b.connect())
    await asyncio.sleep(0.03)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    a.need = Need.NONE
    await c.connect()
    assert a.left == ["n0"]
