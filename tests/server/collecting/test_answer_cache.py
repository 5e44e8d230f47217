"""What a source that is away costs: one wait, then nothing for a minute."""

import asyncio
import threading
import time

import pytest

from oarlock.measure.remote.engine import EngineAway, QueryRefused
from oarlock.server.collecting import engine_curves
from oarlock.server.collecting.engine_curves import AnswerCache

URL = "http://prometheus.example:9090"


def late():
    return EngineAway(URL, "none within 2 s")


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(engine_curves, "ANSWER_SECONDS", 0.1)


class Source:
    """Hangs until it is released; `asked` are the questions that reached it."""

    def __init__(self):
        self.asked, self._released = [], threading.Event()

    def question(self, name):
        def work():
            self.asked.append(name)
            self._released.wait(10)
            return name

        return work

    def release(self):
        self._released.set()


def test_a_source_that_hangs_costs_one_wait_for_all_questions():
    async def story():
        source, cache = Source(), AnswerCache(late)
        with pytest.raises(EngineAway, match="none within"):
            await cache.ask("job 1", source.question("job 1"))
        began = time.monotonic()
        for number in range(2, 50):
            with pytest.raises(EngineAway, match="none within"):
                await cache.ask(f"job {number}", source.question(f"job {number}"))
        assert time.monotonic() - began < 0.1
        assert len(source.asked) <= 2, "one question at a time looks whether it is back"
        source.release()
        cache.close()

    asyncio.run(story())


def test_a_source_that_is_back_answers_the_next_question():
    async def story():
        source, cache = Source(), AnswerCache(late)
        with pytest.raises(EngineAway):
            await cache.ask("job 1", source.question("job 1"))
        source.release()
        with pytest.raises(EngineAway):
            await cache.ask("job 2", source.question("job 2"))
        await asyncio.gather(*cache._asking.values())
        assert await cache.ask("job 3", source.question("job 3")) == "job 3"
        assert await cache.ask("job 2", source.question("job 2")) == "job 2"
        with pytest.raises(EngineAway):
            await cache.ask("job 1", source.question("job 1"))
        cache.close()

    asyncio.run(story())


def test_a_query_that_is_refused_stands_for_itself_alone():
    def refuse():
        raise QueryRefused(URL, "status 422, too many series")

    async def story():
        cache = AnswerCache(late)
        with pytest.raises(QueryRefused):
            await cache.ask("wide", refuse)
        assert await cache.ask("narrow", lambda: 7) == 7
        cache.close()

    asyncio.run(story())


def test_what_a_page_did_not_wait_for_is_remembered():
    async def story():
        source, cache = Source(), AnswerCache(late)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await cache.ask("job 1", source.question("job 1"))
        await asyncio.gather(*cache._asking.values())
        began = time.monotonic()
        with pytest.raises(EngineAway):
            await cache.ask("job 1", source.question("job 1"))
        assert time.monotonic() - began < 0.05
        source.release()
        cache.close()

    asyncio.run(story())


def test_the_address_of_an_engine_is_for_administrators():
    away = EngineAway(URL, "[Errno -2] Name or service not known")
    assert str(away) == "Prometheus has no answer: [Errno -2] Name or service not known."
    assert away.for_administrators == f"Prometheus at {URL} has no answer: [Errno -2] Name or service not known."
    spoken = EngineAway(URL, "certificate is not valid for 'prometheus.example'")
    assert "example" not in str(spoken) + spoken.hint
