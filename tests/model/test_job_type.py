"""Job types are parsed in one place."""

import pytest

from oarlock.lang import options
from oarlock.model.job_type import JobType, JobTypes, container_type, parse_types
from oarlock.model.submission_errors import BadType


def test_a_job_without_types_is_an_ordinary_one():
    assert parse_types(()) == JobTypes()


@pytest.mark.manual(16)
@pytest.mark.parametrize(
    ("types", "parsed"),
    [
        (("besteffort", "idempotent"), {"besteffort": True, "idempotent": True}),
        (("noop", "no_quotas"), {"noop": True, "no_quotas": True}),
        (("deploy", "cosystem"), {"frontend": JobType.COSYSTEM}),
        (("deploy",), {"frontend": JobType.DEPLOY}),
        (("container", "guests=ada,bob"), {"container": "", "guests": frozenset({"ada", "bob"})}),
        (("inner=42", "container=lab"), {"inner": "42", "container": "lab"}),
        (("placeholder=lab", "allowed=other", "allow=third"), {"placeholder": "lab", "allowed": "other"}),
        (("timesharing",), {"timesharing": ""}),
        (("timesharing=user,name", "qos=gold"), {"timesharing": "user,name", "qos": "gold"}),
        (("postpone=a", "deadline=b", "deadline=c"), {"postpone": "a", "deadline": "c"}),
    ],
)
def test_every_type_that_means_something_is_parsed(types, parsed):
    words = frozenset(word.partition("=")[0] for word in types)
    assert parse_types(types) == JobTypes(words=words, **parsed)


@pytest.mark.parametrize("types", [("besteffort=1", "noop=yes"), ("inner", "placeholder", "qos"), ("containers",)])
def test_words_that_only_look_alike_mean_nothing(types):
    assert parse_types(types)._replace(words=frozenset()) == JobTypes()


def test_containers_and_what_runs_in_them_are_told_from_other_jobs():
    for types, is_container, nested in (
        (("container",), True, True),
        ((container_type("lab"),), True, True),
        (("inner=lab",), False, True),
        (("deploy",), False, False),
    ):
        assert (parse_types(types).is_container, parse_types(types).nested) == (is_container, nested)


@pytest.mark.parametrize("text", ["timesharing=x,*", "container=4", "inner", "guests=a b", "no_quotas=1"])
def test_a_value_that_means_nothing_is_refused_with_what_it_may_be(text):
    with pytest.raises(BadType, match="is not a way to write the type") as refused:
        options.type_(text)
    assert refused.value.hint.startswith("Its value is ")
