"""Answers are shared between those who may see the same."""

from collections.abc import Hashable
from typing import Any

from oarlock.config import Config
from oarlock.web.context import RequestContext
from oarlock.web.identity import Caller, CallerChannel, UserAccount
from oarlock.web.policy import AccessPolicy
from oarlock.web.verbs.job.jobs import JobsRequest

SITE = AccessPolicy(Config(), frozenset({"root", "ops"}))


def key(user: str, *, private: bool, **asked: Any) -> Hashable:
    who = SITE.caller(UserAccount(user, 1000), CallerChannel.SOCKET)
    return _call(who, JobsRequest(**asked)).key(private=private)


def _call(who: Caller, asked: JobsRequest) -> RequestContext:
    return RequestContext(None, None, SITE, "jobs.list", who, request=asked)  # type: ignore[arg-type]


def test_what_everybody_may_see_is_shared_by_everybody():
    assert key("ada", private=False) == key("bob", private=False) == key("root", private=False)


def test_what_is_private_is_shared_by_nobody_but_administrators():
    assert len({key(user, private=True) for user in ("ada", "bob", "all", "root")}) == 4
    assert key("root", private=True) == key("ops", private=True)


def test_another_question_has_another_answer():
    assert key("ada", private=True, ids=[1, 2]) != key("ada", private=True, ids=[1]) != key("ada", private=False)
