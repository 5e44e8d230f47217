"""Changed copies of records. `dataclasses.replace` does the same for every record, ten times as slowly."""

from collections.abc import Callable
from typing import Any, TypeVar

R = TypeVar("R")


def changed(record: R, **changes: Any) -> R:
    """Copy a frozen record with slots, with some fields changed. It must not check or compute anything when made."""
    kind = type(record)
    if kind not in _KNOWN:
        _KNOWN[kind] = _copier(kind), _writers(kind)
    copy_of, puts = _KNOWN[kind]
    copy: R = copy_of(record)
    for name, value in changes.items():
        if name not in puts:
            raise TypeError(f"a {kind.__name__} has no field {name!r}")
        puts[name](copy, value)
    return copy


_Writers = dict[str, Callable[[Any, Any], None]]
_KNOWN: dict[type, tuple[Callable[[Any], Any], _Writers]] = {}


def _writers(kind: type) -> _Writers:
    """Return how each field of a kind of record is written: past the `__setattr__` that makes the record frozen."""
    if hasattr(kind, "__post_init__"):
        raise TypeError(f"a {kind.__name__} is made with care; copy it with dataclasses.replace")
    return {name: getattr(kind, name).__set__ for name in kind.__dataclass_fields__}  # type: ignore[attr-defined]


def _copier(kind: type) -> Callable[[Any], Any]:
    """Compile a function that copies a record field by field, as `dataclasses` compiles `__init__`.

    A loop over the fields takes twice as long, and submissions and passes copy records by the ten thousand.
    """
    writers = _writers(kind)
    lines = [f"    put_{name}(copy, record.{name})" for name in writers]
    text = "\n".join(["def copy_of(record):", "    copy = new(kind)", *lines, "    return copy"])
    names: dict[str, Any] = {"new": object.__new__, "kind": kind}
    names |= {f"put_{name}": put for name, put in writers.items()}
    exec(text, names)  # noqa: S102  (the names of our own fields, and nothing else)
    copy_of: Callable[[Any], Any] = names["copy_of"]
    return copy_of
