"""The check of words: what it refuses, and that its allowances can only fall."""

from scripts import voice

TEXT = '''"""Give a thing."""

class Asked:
    """Say what."""

    asked: int

    def run(self, told):
        """Return it."""
        found = [one for one in told]
        return found

    async def _told(self): ...
'''


def test_banned_openings_and_names_are_listed_with_their_place():
    assert sorted(voice.breaches("a.py", TEXT)) == [
        ("docstring", "a.py:1: a docstring begins with `Give`"),
        ("docstring", "a.py:3: a docstring begins with `Say`"),
        ("function", "a.py:13: a function is called `_told`"),
        ("variable", "a.py:10: a variable is called `found`"),
        ("variable", "a.py:10: a variable is called `one`"),
        ("variable", "a.py:8: a parameter is called `told`"),
    ]


def test_a_class_name_that_means_two_things_is_named():
    files = {"a.py": "class Held: ...", "b.py": "class Held: ...\nclass _Held: ..."}
    assert list(voice.doubled_classes(files)) == [("class", "a.py: `Held` is also a class of b.py")]


def test_more_breaches_than_allowed_fail_and_fewer_ask_for_a_lower_number():
    found = [("variable", "a.py:1: x"), ("variable", "a.py:2: y")]
    assert voice.verdict(found, {"variable": 2}) == []
    assert voice.verdict(found, {"variable": 1})[-1] == "variable: 2 breaches, 1 are allowed; see docs/glossary.md"
    assert voice.verdict(found, {"variable": 3}) == [
        "variable: 2 breaches are left; lower its number in scripts/voice.py from 3"
    ]
