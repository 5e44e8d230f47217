"""Archives for tests, made by `tarfile`."""

import gzip
import io
import tarfile
from collections.abc import Mapping
from typing import Any

THEN = 1_000_000_000


def archive(content: Mapping[str, Any], *, how: int = tarfile.GNU_FORMAT, zipped: bool = True) -> bytes:
    """Pack files (bytes), directories (None) and what a function makes of an entry."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=how) as made:
        for name, what in content.items():
            entry = tarfile.TarInfo(name)
            entry.mtime, entry.mode = THEN, 0o644
            if what is None:
                entry.type = tarfile.DIRTYPE
            elif isinstance(what, bytes):
                entry.size = len(what)
            else:
                what(entry)
            made.addfile(entry, io.BytesIO(what) if isinstance(what, bytes) else None)
    return gzip.compress(packed.getvalue(), mtime=0) if zipped else packed.getvalue()


def changed(**fields: Any) -> Any:
    """Give what sets fields of an entry."""

    def change(entry: tarfile.TarInfo) -> None:
        for name, value in fields.items():
            setattr(entry, name, value)

    return change
