"""What a rule can do to a submission: a short list, and each does only what it names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from msgspec.structs import replace

from oarlock.lang import duration, options
from oarlock.lang import where as conditions
from oarlock.lang.rules.vocabulary import RuleContext, Template, TemplateValues, fill
from oarlock.model.condition import Condition, both
from oarlock.model.submission import Alternative, ResourceGroup, Submission


class SubmissionChange(Protocol):
    """One change; `made` returns the changed submission, the same object if nothing had to change."""

    def made(self, submission: Submission, values: TemplateValues, context: RuleContext) -> Submission:
        """Make the change."""


@dataclass(frozen=True, slots=True)
class SettableField:
    """A field that a rule may set: where it is kept, and who checks what comes there."""

    attribute: str
    check: Callable[[Any], Any]
    kind: type


SETTABLE: Mapping[str, SettableField] = {
    "queue": SettableField("queue", options.queue, str),
    "project": SettableField("project", options.project, str),
    "name": SettableField("name", options.name, str),
    "notify": SettableField("notify", options.notify, str),
    "directory": SettableField("directory", options.directory, str),
    "stdout": SettableField("stdout", options.path, str),
    "stderr": SettableField("stderr", options.path, str),
    "command": SettableField("command", options.command, str),
    "checkpoint": SettableField("checkpoint", options.checkpoint, int),
    "signal": SettableField("checkpoint_signal", options.signal, int),
    "hold": SettableField("hold", bool, bool),
    "use_key": SettableField("use_key", bool, bool),
}


@dataclass(frozen=True, slots=True)
class SetField:
    """`set` and `default`: give a field a value, always or only where the job has none."""

    field: str
    value: Template | int
    only_missing: bool

    def made(self, submission: Submission, values: TemplateValues, context: RuleContext) -> Submission:  # noqa: ARG002
        settable = SETTABLE[self.field]
        if self.only_missing and getattr(submission, settable.attribute):
            return submission
        value = self.value.filled(values) if isinstance(self.value, Template) else self.value
        if getattr(submission, settable.attribute) == value:
            return submission
        return replace(submission, **{settable.attribute: settable.check(value)})


@dataclass(frozen=True, slots=True)
class SetWalltime:
    """`set`, `default`, `clamp_max`, `clamp_min` of the walltime: in every alternative."""

    how: Callable[[int | None, int], int | None]
    value: Template | int

    def made(self, submission: Submission, values: TemplateValues, context: RuleContext) -> Submission:  # noqa: ARG002
        seconds = duration.parse(self.value.filled(values)) if isinstance(self.value, Template) else self.value

        def timed(alternative: Alternative) -> Alternative:
            walltime = self.how(alternative.walltime, seconds)
            return alternative if walltime == alternative.walltime else replace(alternative, walltime=walltime)

        return _each(submission, timed)


def always(_: int | None, value: int) -> int:
    """Take the new walltime."""
    return value


def missing(old: int | None, value: int) -> int:
    """Take the new walltime where there is none."""
    return value if old is None else old


def at_most(old: int | None, value: int) -> int | None:
    """Cut a longer walltime."""
    return None if old is None else min(old, value)


def at_least(old: int | None, value: int) -> int | None:
    """Stretch a shorter walltime."""
    return None if old is None else max(old, value)


@dataclass(frozen=True, slots=True)
class Constrain:
    """`add_constraint`: one more condition for the whole job."""

    condition: Condition

    def made(self, submission: Submission, values: TemplateValues, context: RuleContext) -> Submission:
        request = submission.request
        more = _filled(self.condition, values, context)
        return replace(submission, request=replace(request, where=both(request.where, more)))


@dataclass(frozen=True, slots=True)
class ConstrainGroups:
    """`add_constraint_to_groups`: one more condition for every group that does not speak of these properties itself."""

    condition: Condition

    def made(self, submission: Submission, values: TemplateValues, context: RuleContext) -> Submission:
        more = _filled(self.condition, values, context)
        named = conditions.columns(more)
        if _reads(submission.request.where, named):
            return submission

        def constrained(group: ResourceGroup) -> ResourceGroup:
            return group if _reads(group.where, named) else replace(group, where=both(group.where, more))

        return _each(
            submission,
            lambda alternative: replace(alternative, groups=tuple(map(constrained, alternative.groups))),
        )


@dataclass(frozen=True, slots=True)
class ConstrainAfter:
    """`add_constraint_after_validation`: a condition that the check against what there is does not look at."""

    condition: Condition

    def made(self, submission: Submission, values: TemplateValues, context: RuleContext) -> Submission:
        more = conditions.show(_filled(self.condition, values, context))
        if more in submission.rule_where:
            return submission
        return replace(submission, rule_where=(*submission.rule_where, more))


@dataclass(frozen=True, slots=True)
class AddTypes:
    """`add_type`: job types that the job gets if it does not have them."""

    types: Sequence[str]

    def made(self, submission: Submission, values: TemplateValues, context: RuleContext) -> Submission:  # noqa: ARG002
        new = [options.type_(type_) for type_ in self.types if type_ not in submission.types]
        return replace(submission, types=(*submission.types, *new)) if new else submission


@dataclass(frozen=True, slots=True)
class RemoveTypes:
    """`remove_type`: job types that the job loses."""

    types: Sequence[str]

    def made(self, submission: Submission, values: TemplateValues, context: RuleContext) -> Submission:  # noqa: ARG002
        left = tuple(type_ for type_ in submission.types if type_ not in self.types)
        return submission if left == submission.types else replace(submission, types=left)


def _filled(condition: Condition, values: TemplateValues, context: RuleContext) -> Condition:
    """Fill a condition and hold it against the properties there are; most are the same for every job."""
    return _checked(fill(condition, values), tuple(context.properties.items()))


@lru_cache(maxsize=1024)
def _checked(condition: Condition, types: tuple[tuple[str, type], ...]) -> Condition:
    return conditions.check(condition, dict(types))


def _each(submission: Submission, change: Callable[[Alternative], Alternative]) -> Submission:
    request = submission.request
    alternatives = tuple(map(change, request.alternatives))
    if alternatives == request.alternatives:
        return submission
    return replace(submission, request=replace(request, alternatives=alternatives))


def _reads(condition: Condition | None, named: frozenset[str]) -> bool:
    return condition is not None and bool(conditions.columns(condition) & named)
