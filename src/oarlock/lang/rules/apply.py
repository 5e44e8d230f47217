"""Rules applied to a submission, one after the other: the same input always gives the same output."""

from collections.abc import Iterable
from dataclasses import dataclass

from msgspec import Struct

from oarlock.lang.rules.parse import AdmissionRule
from oarlock.lang.rules.vocabulary import FieldValues, RuleContext, Template, TemplateValues, levels
from oarlock.lang.where import like
from oarlock.model.errors import OarlockError
from oarlock.model.submission import Submission

PREFIX = "[ADMISSION RULE] "
"""What stands before everything that a rule says to a user, as in OAR."""


class RuleAcceptance(Struct, frozen=True):
    """A submission as the rules left it, and what they say to its user."""

    submission: Submission
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleRefusal:
    """Which rule does not let a submission in, and why. `broken`: the rule itself does not work."""

    rule: AdmissionRule
    sentence: str
    broken: bool = False


def apply(rules: Iterable[AdmissionRule], submission: Submission, context: RuleContext) -> RuleAcceptance | RuleRefusal:
    """Apply rules in their order; the first that rejects, or does not work, ends it.

    The request was checked with `context.properties`, and `context.lists` has every file that a rule names.
    """
    messages: list[str] = []
    fields = FieldValues(submission, context)
    for rule in rules:
        if rule.when is not None and not rule.when.holds(fields):
            continue
        if rule.reject is not None:
            offence = _rejected(rule, submission)
            if offence is not None:
                return RuleRefusal(rule, rule.reject.filled(TemplateValues(fields, offence)))
            continue
        try:
            changed = _changed(rule, submission, TemplateValues(fields), context)
        except OarlockError as problem:
            return RuleRefusal(rule, str(problem), broken=True)
        if changed is not submission:
            submission, fields = changed, FieldValues(changed, context)
            messages += _messages(rule.prints, fields)
        elif not rule.changes:
            messages += _messages(rule.prints, fields)
        messages += _messages(rule.warns, fields)
    return RuleAcceptance(submission, tuple(messages))


def _rejected(rule: AdmissionRule, submission: Submission) -> dict[str, str] | None:
    """Return the placeholders of what a rule rejects; None if it rejects nothing."""
    if rule.allow_types is not None:
        allowed = [like(pattern) for pattern in rule.allow_types]
        unknown_types = (type_ for type_ in submission.types if not any(form.fullmatch(type_) for form in allowed))
        return next(({"type": type_} for type_ in unknown_types), None)
    if rule.refuse_levels is not None:
        refused_levels = (name for name in levels(submission.request) if name.lower() in rule.refuse_levels)
        return next(({"level": name} for name in refused_levels), None)
    return {}


def _changed(rule: AdmissionRule, submission: Submission, values: TemplateValues, context: RuleContext) -> Submission:
    for change in rule.changes:
        submission = change.made(submission, values, context)
    return submission


def _messages(template: Template | None, fields: FieldValues) -> list[str]:
    return [] if template is None else [PREFIX + template.filled(TemplateValues(fields))]
