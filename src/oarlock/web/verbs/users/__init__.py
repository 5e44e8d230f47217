"""Verbs about users: their tokens, browsers and mails."""
