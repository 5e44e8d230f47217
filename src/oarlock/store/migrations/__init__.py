"""The steps from an older database to the present one, oldest first."""

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010")
"""Every step that this version of the code knows; a database at any other one is from a newer version."""
