"""The language of admission rules: TOML files of conditions on a job and a short list of things to do with it.

Data, never code: a rule cannot do what is not on the list, and applying rules is a pure function.
"""

from oarlock.lang.rules.apply import PREFIX, RuleAcceptance, RuleRefusal, apply
from oarlock.lang.rules.evaluate import RuleCondition
from oarlock.lang.rules.parse import AdmissionRule, RuleExample, RuleFile, read
from oarlock.lang.rules.vocabulary import COUNTS, FIELDS, RuleContext

__all__ = [
    "COUNTS",
    "FIELDS",
    "PREFIX",
    "AdmissionRule",
    "RuleAcceptance",
    "RuleCondition",
    "RuleContext",
    "RuleExample",
    "RuleFile",
    "RuleRefusal",
    "apply",
    "read",
]
