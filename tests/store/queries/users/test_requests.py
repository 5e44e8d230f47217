"""Request ids, tokens and summaries."""

import pytest

from oarlock.model.errors import RequestIdReused
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import summaries
from oarlock.store.queries.usage.summaries import Summary
from oarlock.store.queries.users import user_records
from oarlock.store.queries.users.user_records import StoredToken
from tests.clusters import NOW
from tests.store.cluster import add_job


def test_a_request_that_comes_again_gets_the_same_answer(tx: Tx):
    asked = {"user": "ada", "request_id": "r1", "verb": "submit"}
    assert user_records.answer_of(tx, **asked) is None
    user_records.remember_answer(tx, **asked, answer='{"job_id": 7}', at=NOW)
    assert user_records.answer_of(tx, **asked) == '{"job_id": 7}'


def test_an_id_belongs_to_one_user(tx: Tx):
    user_records.remember_answer(tx, user="ada", request_id="r1", verb="submit", answer="7", at=NOW)
    assert user_records.answer_of(tx, user="bob", request_id="r1", verb="delete") is None
    user_records.remember_answer(tx, user="bob", request_id="r1", verb="delete", answer="8", at=NOW)
    assert user_records.answer_of(tx, user="ada", request_id="r1", verb="submit") == "7"


def test_an_id_does_not_stand_for_two_things(tx: Tx):
    user_records.remember_answer(tx, user="ada", request_id="r1", verb="submit", answer="7", at=NOW)
    with pytest.raises(RequestIdReused, match="r1 was already used for `submit`, not for `delete`"):
        user_records.answer_of(tx, user="ada", request_id="r1", verb="delete")


def test_old_answers_are_forgotten(tx: Tx):
    for number in range(3):
        user_records.remember_answer(tx, user="ada", request_id=f"r{number}", verb="v", answer="", at=NOW + number)
    assert user_records.forget_answers(tx, before=NOW + 2, most_of_user=100, at_once=100) == 2
    assert [user_records.answer_of(tx, user="ada", request_id=f"r{n}", verb="v") for n in range(3)] == [None, None, ""]


def test_a_token_opens_until_it_expires_or_is_revoked(tx: Tx):
    first, second = StoredToken("h1", "ada", "laptop", NOW, NOW + 10), StoredToken("h2", "ada", "", NOW + 1, NOW + 20)
    user_records.add_token(tx, first)
    user_records.add_token(tx, second)
    assert [user_records.valid_token(tx, one, now=NOW + 9) for one in ("h1", "h2", "h3")] == [first, second, None]
    assert user_records.valid_token(tx, "h1", now=NOW + 10) is None
    assert user_records.tokens_of(tx, "ada") == [first, second]
    assert user_records.revoke_token(tx, user="bob", token_hash="h2") is False
    assert user_records.revoke_token(tx, user="ada", token_hash="h2") is True
    assert user_records.valid_token(tx, "h2", now=NOW) is None
    assert user_records.forget_tokens(tx, now=NOW + 10) == 1
    assert user_records.tokens_of(tx, "ada") == []


def test_a_summary_is_kept_and_replaced_and_absent_is_not_zero(tx: Tx):
    job, other = add_job(tx).id, add_job(tx).id
    first = Summary(job_id=job, date=NOW, cpu_seconds=1.5, memory_peak_bytes=2**40, energy_joules=0.0, detail='{"a":1}')
    summaries.save(tx, [first, Summary(job_id=other, date=NOW)])
    better = Summary(job_id=job, date=NOW + 1, gpu_seconds=2.25)
    assert summaries.of_jobs(tx, [job, other]) == [first, Summary(job_id=other, date=NOW)]
    summaries.save(tx, [better])
    assert summaries.of_jobs(tx, [job]) == [better]


def test_many_requests_are_looked_up_at_once(tx):
    user_records.remember_answer(tx, user="ada", request_id="r1", verb="submit", answer="7", at=0)
    user_records.remember_answer(tx, user="bob", request_id="r2", verb="delete", answer="8", at=0)
    asked = [("ada", "r1"), ("ada", "r2"), ("bob", "r2"), ("bob", "r1")]
    assert user_records.answered_keys(tx, asked) == {("ada", "r1"), ("bob", "r2")}
    assert user_records.answered_keys(tx, []) == set()


def test_old_answers_and_those_beyond_the_most_are_forgotten_in_slices(tx):
    for place in range(10):
        user_records.remember_answer(tx, user="ada", request_id=f"r{place}", verb="submit", answer="7", at=place)
    user_records.remember_answer(tx, user="bob", request_id="r", verb="submit", answer="8", at=9)
    assert user_records.forget_answers(tx, before=4, most_of_user=100, at_once=3) == 3
    assert user_records.forget_answers(tx, before=4, most_of_user=100, at_once=3) == 1
    assert user_records.forget_answers(tx, before=4, most_of_user=2, at_once=3) == 3
    assert user_records.forget_answers(tx, before=4, most_of_user=2, at_once=3) == 1
    assert user_records.forget_answers(tx, before=4, most_of_user=2, at_once=3) == 0
    every = [("ada", f"r{place}") for place in range(10)] + [("bob", "r")]
    assert user_records.answered_keys(tx, every) == {("ada", "r8"), ("ada", "r9"), ("bob", "r")}
