"""How a settings file is read: text as bash reads it, values by kind, secrets from files of their own.

What the settings are stands in `oarlock.config`.
"""
