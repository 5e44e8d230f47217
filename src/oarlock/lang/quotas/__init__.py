"""The language of quotas: OAR 3's file, read and checked; and what of its calendar holds when."""

from oarlock.lang.quotas.calendar import Span, spans
from oarlock.lang.quotas.parse import read
from oarlock.lang.quotas.rules import resolved, rule
from oarlock.lang.quotas.validate import mistakes, unused

__all__ = ["Span", "mistakes", "read", "resolved", "rule", "spans", "unused"]
