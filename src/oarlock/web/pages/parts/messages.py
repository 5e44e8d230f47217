"""The languages of the portal. A message is known by its English text; the catalogue has the others."""

import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

LANGUAGES = {"en": "English", "fr": "Français"}
COOKIE = "oarlock-language"

Translate = Callable[..., str]


@cache
def catalogue() -> Mapping[str, str]:
    """Return the French text of each English one."""
    content: dict[str, str] = tomllib.loads(Path(__file__).with_name("messages.toml").read_text())["fr"]
    return content


def translator(language: str) -> Translate:
    """Return what turns a message into a language; values are filled in afterwards: `t("{count} jobs", count=3)`."""
    texts = catalogue() if language == "fr" else {}

    def translate(message: str, /, **values: object) -> str:
        text = texts.get(message, message)
        return text.format(**values) if values else text

    return translate


def chosen(accepted: str, cookie: str) -> str:
    """Return the language of a browser: what was chosen, else the first of its own that the portal speaks."""
    if cookie in LANGUAGES:
        return cookie
    for word in re.findall(r"[A-Za-z]+(?:-[A-Za-z]+)?", accepted[:200]):
        if word[:2].lower() in LANGUAGES:
            return str(word[:2].lower())
    return "en"
