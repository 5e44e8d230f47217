"""What was found about a job: rules applied to its facts and to its script."""

from collections.abc import Iterator
from string import Formatter

from msgspec import Struct
from msgspec.structs import replace

from oarlock.insight.facts import Facts
from oarlock.insight.rules import FindingRule, FindingRules, ScriptRule, Severity
from oarlock.insight.wording import LANGUAGES, write_all
from oarlock.lang import where
from oarlock.model.condition import Condition

LONGEST_SCRIPT = 64 * 1024
"""How much of a script is searched: a pattern of a site may be slow."""


class Finding(Struct, frozen=True):
    """A finding about one job, with its numbers in it. `plot` names the group of curves that show it."""

    id: str
    severity: Severity
    plot: str
    text: str
    advice: str = ""
    line: str = ""


def find(
    rules: FindingRules, facts: Facts, *, script: str | None = None, language: str = "en", elsewhere: bool = False
) -> list[Finding]:
    """Return what is found about a job, the bad before the rest, each in the order of the rules.

    A rule whose condition asks about something unknown finds nothing; nor does one that has seen too little. A job of
    another resource manager (`elsewhere`) gets no line for `oarsub`.
    """
    language = language if language in LANGUAGES else LANGUAGES[0]
    written = write_all(facts, language)
    findings = [
        _written(rule, severity, facts, written, language)
        for rule in rules.findings
        if (severity := judge(rule, facts)) is not None
    ]
    if elsewhere:
        findings = [replace(finding, line="") for finding in findings]
    findings += _in_script(rules.scripts, script, facts, written, language)
    return sorted(findings, key=lambda finding: finding.severity is not Severity.BAD)


def judge(rule: FindingRule, facts: Facts) -> Severity | None:
    """Return how bad the facts are by one rule, or None if it finds nothing."""
    if not (_reaches(facts, "samples", rule.least_samples) and _reaches(facts, "run_seconds", rule.least_seconds)):
        return None
    for severity, condition in ((Severity.BAD, rule.bad), (Severity.WARN, rule.warn)):
        if condition is not None and _is_known(condition, facts) and where.truth(condition, facts):
            return severity
    return None


def _is_known(condition: Condition, facts: Facts) -> bool:
    """Return whether every fact is known that a condition asks about; SQL's logic alone would let some pass."""
    return all(facts[name] is not None for name in where.columns(condition))


def _reaches(facts: Facts, name: str, least: int) -> bool:
    value = facts[name]
    return isinstance(value, int | float) and value >= least


def _written(
    rule: FindingRule, severity: Severity, facts: Facts, written: dict[str, str], language: str
) -> Finding:  # fmt: skip
    texts = rule.texts[language]
    advice, line = (text if _names_known(text, facts) else "" for text in (texts.advice, rule.line))
    return Finding(
        rule.id,
        severity,
        rule.plot,
        texts.text.format_map(written),
        advice.format_map(written),
        line.format_map(written),
    )


def _names_known(text: str, facts: Facts) -> bool:
    """Return whether all facts that an advice or a line names are known: with a gap in it, it is none."""
    return all(facts[name] is not None for _, name, _, _ in Formatter().parse(text) if name)


def _in_script(
    rules: tuple[ScriptRule, ...], script: str | None, facts: Facts, written: dict[str, str], language: str
) -> Iterator[Finding]:
    if not script:
        return
    searched = script[:LONGEST_SCRIPT]
    for rule in rules:
        if _holds(rule, facts) and _matches(rule, searched, facts):
            texts = rule.texts[language]
            text, advice = texts.text.format_map(written), texts.advice.format_map(written)
            yield Finding(rule.id, rule.severity, "script", text, advice)


def _holds(rule: ScriptRule, facts: Facts) -> bool:
    """Return whether the condition of a rule holds; what is unknown makes it false."""
    if rule.differs and facts[rule.differs] is None:
        return False
    return rule.when is None or (_is_known(rule.when, facts) and bool(where.truth(rule.when, facts)))


def _matches(rule: ScriptRule, script: str, facts: Facts) -> bool:
    if rule.unless and rule.unless.search(script):
        return False
    if not rule.differs:
        return rule.pattern.search(script) is not None
    return any(int(match[1]) != facts[rule.differs] for match in rule.pattern.finditer(script))
