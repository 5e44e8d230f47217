"""The language of admission rules: TOML files of conditions on a job and a short list of things to do with it.

Data, never code: a rule cannot do what is not on the list, and applying rules is a pure function.
"""

from oarlock.lang.rules.apply import PREFIX, Admitted, Refused, apply
from oarlock.lang.rules.evaluate import When
from oarlock.lang.rules.parse import Example, Rule, RuleFile, read
from oarlock.lang.rules.vocabulary import COUNTS, FIELDS, Context

__all__ = [
    "COUNTS",
    "FIELDS",
    "PREFIX",
    "Admitted",
    "Context",
    "Example",
    "Refused",
    "Rule",
    "RuleFile",
    "When",
    "apply",
    "read",
]
