"""Tests mirror `src/oarlock`; a test's name is the sentence it proves."""
