"""The rules in the table `admission_rules`: shown, added, changed and removed; a text is tried before it is stored."""

from msgspec import Struct

from oarlock.job.admission.examples import run_examples
from oarlock.job.admission.rules import PERL_HINT, RuleSource
from oarlock.lang import rules
from oarlock.lang.rules import perl
from oarlock.model.event import Event, EventType
from oarlock.model.submission_errors import BadRule, ExamplesFailed, UnknownRule
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import administration, events
from oarlock.store.queries.administration import RuleRow


class StoredRuleView(Struct, frozen=True):
    """A row of the table. `language`: TOML, Perl of the manual (which is translated), or Perl (which is not used)."""

    id: int
    priority: int
    enabled: bool
    rule: str
    language: str
    names: tuple[str, ...] = ()


def listed(tx: Tx) -> list[StoredRuleView]:
    """Return all rows, in the order in which they would apply."""
    return [_view(row) for row in administration.all_rules(tx)]


def add(tx: Tx, text: str, *, priority: int, enabled: bool) -> int:
    """Store a text of rules; return its number. `BadRule`, `ExamplesFailed`: it would not work."""
    check(text)
    return administration.add_rules(tx, text, priority=priority, enabled=enabled)


def change(
    tx: Tx, number: int, *, text: str | None = None, priority: int | None = None, enabled: bool | None = None
) -> None:
    """Change a row (`UnknownRule`); what is switched on must work."""
    row = _row(tx, number)
    changed = row._replace(
        text=row.text if text is None else text,
        priority=row.priority if priority is None else priority,
        enabled=row.enabled if enabled is None else enabled,
    )
    if text is not None or (changed.enabled and not row.enabled and perl.translated(row.text) is None):
        check(changed.text)
    administration.set_rules(tx, changed)


def remove(tx: Tx, number: int) -> None:
    """Delete a row (`UnknownRule`)."""
    _row(tx, number)
    administration.remove_rules(tx, number)


def check(text: str) -> None:
    """Raise `BadRule` if a text cannot be read, `ExamplesFailed` if an example beside a rule comes out otherwise."""
    if perl.is_perl(text):
        raise BadRule("This rule is written in Perl, which is not run here.", hint=PERL_HINT)
    parsed = rules.read(text, file="the rule")
    if not parsed.rules:
        raise BadRule("There is no [[rule]] in this text.", hint="--disabled switches a rule off.")
    source = RuleSource("the rule", 0, parsed.rules, parsed.examples)
    for result in run_examples(source):
        if result.differs:
            raise ExamplesFailed(
                f"The example `{result.example.name}` comes out otherwise: {result.differs}",
                hint="Change the rule, or what its example says.",
            )


def disable_perl(tx: Tx, *, now: int) -> list[int]:
    """Switch off the rows that are Perl and none of the manual's examples, each with an event; return their numbers."""
    rows = [row for row in administration.all_rules(tx) if row.enabled and _language(row.text) == "Perl"]
    for row in rows:
        administration.set_rules(tx, row._replace(enabled=False))
        says = f"row {row.id} of admission_rules is written in Perl and was switched off; {PERL_HINT}"
        events.add(tx, [Event(EventType.ADMISSION_RULE_ERROR, now, says)])
    return [row.id for row in rows]


def _row(tx: Tx, number: int) -> RuleRow:
    for row in administration.all_rules(tx):
        if row.id == number:
            return row
    raise UnknownRule(f"There is no rule {number} in the table.", hint="`oaradmissionrules -S` lists them.")


def _view(row: RuleRow) -> StoredRuleView:
    language, text = _language(row.text), perl.translated(row.text) or row.text
    try:
        names = tuple(rule.name for rule in rules.read(text, file="rule").rules)
    except BadRule:
        names = ()
    return StoredRuleView(row.id, row.priority, row.enabled, row.text, language, names)


def _language(text: str) -> str:
    if not perl.is_perl(text):
        return "TOML"
    return "Perl" if perl.translated(text) is None else "Perl of the manual"
