"""Every setting, and how a file of them is read: text as bash reads it, values by kind, secrets from own files.

`oarlock.config` puts them together.
"""
