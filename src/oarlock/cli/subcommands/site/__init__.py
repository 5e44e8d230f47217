"""Subcommands about the site and its users: limits, rules, tokens, mails, other commands."""
