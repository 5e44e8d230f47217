"""The language of quotas: OAR 3's file, read and checked; and what of its calendar holds when."""

from oarlock.lang.quotas.calendar import Span, spans
from oarlock.lang.quotas.mistakes import mistakes, unused
from oarlock.lang.quotas.reading import read
from oarlock.lang.quotas.rules import resolved, rule

__all__ = ["Span", "mistakes", "read", "resolved", "rule", "spans", "unused"]
