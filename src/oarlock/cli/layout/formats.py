"""Plain data (dicts, lists, texts, numbers, nothing) as Perl structure, XML, YAML and JSON, laid out as OAR does.

Keys are sorted, so that the same data always gives the same text. Types survive: a text that looks like a number is
quoted in YAML, and a number is not. XML has no document type and no memory addresses, which OAR's reader adds and no
reader needs.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_YAML_WORDS = frozenset({"", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", "=", "<<"})
_YAML_STARTS = frozenset("-?:,[]{}#&*!|>'\"%@` ")
_NUMBERISH = frozenset("0123456789+-.:_eExXoOaAbBcCdDfFTtZz ")
_XML_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "'": "&apos;", '"': "&quot;", "\r": "&#13;"}


def written(value: Any, form: str) -> str:
    """Write data in one of the formats of `options.FORMATS`; the text ends with a line end."""
    return {"dumper": dumper, "xml": xml, "yaml": yaml, "json": json}[form](value)


def json(value: Any) -> str:
    """Write JSON, three spaces a level and a space before each colon."""
    from json import dumps

    text = dumps(value, indent=3, separators=(",", " : "), sort_keys=True, ensure_ascii=False)
    # `dumps` leaves control characters from 0x7f on as they are. Ends of lines are never inside of texts here.
    return "".join(f"{line if line.isprintable() else _json_shown(line)}\n" for line in text.split("\n"))


def _json_shown(line: str) -> str:
    return "".join(c if c.isprintable() else _json_escaped(ord(c)) for c in line)


def _json_escaped(code: int) -> str:
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000  # JSON writes these as two halves
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def dumper(value: Any) -> str:
    """Write a structure that Perl reads."""
    return _perl(value, "") + "\n"


def _perl(value: Any, indent: str) -> str:
    deeper = indent + "  "
    if isinstance(value, dict) and value:
        items = [f"{deeper}{_perl_scalar(str(key))} => {_perl(item, deeper)}" for key, item in _sorted(value)]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(f"{deeper}{_perl(item, deeper)}" for item in value) + f"\n{indent}]"
    return _perl_scalar(value)


def _perl_scalar(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "{}" if isinstance(value, dict) else "[]"
    if value is None:
        return "undef"
    if isinstance(value, (bool, int)):
        return str(int(value))
    text = str(value)
    if _is_plain(text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return '"' + "".join(_perl_escaped(c) for c in text) + '"'


def _perl_escaped(c: str) -> str:
    if c in '\\"$@':
        return f"\\{c}"
    return c if c.isprintable() else f"\\x{{{ord(c):x}}}"


def _is_plain(text: str) -> bool:
    """Whether a terminal does nothing with a text but show it; ends of lines and tabs do no harm."""
    return text.isprintable() or all(c.isprintable() or c in "\n\t" for c in text)


def xml(value: Any) -> str:
    """Write XML as Perl's XML::Dumper does: hashref, arrayref, item."""
    return "\n".join(['<?xml version="1.0"?>', "<perldata>", *_xml(value, " "), "</perldata>", ""])


def _xml(value: Any, indent: str) -> list[str]:
    if not isinstance(value, (dict, list)):
        return [f"{indent}<scalar>{_xml_text(value)}</scalar>"]
    kind, items = ("hashref", _sorted(value)) if isinstance(value, dict) else ("arrayref", list(enumerate(value)))
    lines = [line for key, item in items for line in _xml_item(str(key), item, indent + " ")]
    return [f"{indent}<{kind}>", *lines, f"{indent}</{kind}>"]


def _xml_item(key: str, value: Any, indent: str) -> list[str]:
    start = f'{indent}<item key="{_xml_text(key)}"'
    if value is None:
        return [f'{start} defined="false"></item>']
    if isinstance(value, (dict, list)):
        return [f"{start}>", *_xml(value, indent + " "), f"{indent}</item>"]
    return [f"{start}>{_xml_text(value)}</item>"]


def _xml_text(value: Any) -> str:
    text = str(int(value)) if isinstance(value, bool) else str(value)
    return "".join(_XML_ESCAPES.get(c) or (c if c.isprintable() or c in "\n\t" else _xml_escaped(ord(c))) for c in text)


def _xml_escaped(code: int) -> str:
    return f"&#x{code:x};" if _is_xml(code) else "\ufffd"


def _is_xml(code: int) -> bool:
    """Whether XML has a way to write a character: most control characters and halves of pairs have none."""
    return code in {0x9, 0xA} or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


def yaml(value: Any) -> str:
    """Write YAML that 1.1 and 1.2 readers read alike."""
    if isinstance(value, (dict, list)) and value:
        return "\n".join(["--- ", *_yaml(value, ""), ""])
    return f"--- {_yaml_scalar(value)}\n"


def _yaml(value: Any, indent: str) -> list[str]:
    if isinstance(value, dict):
        return [line for key, item in _sorted(value) for line in _yaml_item(f"{indent}{_yaml_key(key)}:", item, indent)]
    return [line for item in value for line in _yaml_item(f"{indent}-", item, indent)]


def _yaml_item(start: str, value: Any, indent: str) -> list[str]:
    if not isinstance(value, (dict, list)):
        return [f"{start} {_yaml_scalar(value)}"]
    if value:
        return [f"{start} ", *_yaml(value, indent + "  ")]
    return [f"{start} {_yaml_scalar(value)}", ""]


def _yaml_key(key: object) -> str:
    text = str(key)
    return text if text.isdecimal() else _yaml_scalar(text)


def _yaml_scalar(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "{}" if isinstance(value, dict) else "[]"
    if value is None:
        return "~"
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return str(value)
    if not value.isprintable():
        return '"' + "".join(_yaml_escaped(c) for c in value) + '"'
    return "'" + value.replace("'", "''") + "'" if _yaml_needs_quotes(value) else value


def _yaml_needs_quotes(text: str) -> bool:
    if text.lower() in _YAML_WORDS or text[0] in _YAML_STARTS or text[-1] in " :" or ": " in text or " #" in text:
        return True
    return text[0] in "0123456789+." and _NUMBERISH.issuperset(text)


def _yaml_escaped(c: str) -> str:
    if c in '"\\':
        return f"\\{c}"
    if c.isprintable():
        return c
    code = ord(c)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _sorted(value: dict[Any, Any]) -> list[tuple[Any, Any]]:
    return sorted(value.items(), key=lambda item: str(item[0]))
