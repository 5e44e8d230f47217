"""Both languages have every message, and French is not English by accident."""

import re

import pytest

from oarlock.web.pages import __all__ as _registered  # noqa: F401
from oarlock.web.pages.parts.messages import catalogue, chosen, translator
from oarlock.web.pages.parts.registry import PAGES
from oarlock.web.pages.parts.rendering import TEMPLATES, with_code

MESSAGE = re.compile(r"""\bt\(\s*(?:"([^"]+)"|'([^']+)')""")


def _used() -> set[str]:
    texts = "".join(path.read_text() for path in TEMPLATES.glob("*.html"))
    return {first or second for first, second in MESSAGE.findall(texts)} | {page.nav for page in PAGES if page.nav}


def test_every_message_has_its_french_and_no_other_is_kept():
    missing = sorted(_used() - set(catalogue()))
    assert missing == []


def test_a_translation_has_the_same_places_for_values():
    places = {text: (set(re.findall(r"{\w+}", text)), set(re.findall(r"{\w+}", french)))
              for text, french in catalogue().items()}  # fmt: skip
    assert [text for text, (here, there) in places.items() if here != there] == []


@pytest.mark.parametrize(
    ("accepted", "cookie", "language"),
    [("fr-FR,en;q=0.5", "", "fr"), ("de,fr", "", "fr"), ("de", "", "en"), ("fr", "en", "en"), ("", "<x>", "en")],
)
def test_the_language_is_the_chosen_one_else_the_browsers(accepted, cookie, language):
    assert chosen(accepted, cookie) == language


def test_values_are_filled_in_after_translation():
    assert translator("fr")("{count} jobs", count=3) == "3 tâches"


def test_what_stands_between_backticks_is_code_and_stays_escaped():
    assert with_code("`<b>` cannot be `a` `") == "<code>&lt;b&gt;</code> cannot be <code>a</code> `"
