"""Files for browsers: style, scripts, what others wrote. Their names have a hash: they are cached for ever."""

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "assets"
PREFIX = "/assets/"
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
_FOR_EVER = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file, as it is and compressed."""

    content: bytes
    compressed: bytes
    media_type: str

    @property
    def headers(self) -> dict[str, str]:
        """What a browser may do with it."""
        return {"content-type": self.media_type, "cache-control": _FOR_EVER, "vary": "accept-encoding"}


class AssetTable:
    """All files, by address. They are read and compressed once, when the first page is shown."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._by_path: dict[str, Asset] = {}
        self._address: dict[str, str] = {}
        for path in _files(folder):
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:12]
            address = f"{PREFIX}{path.stem}.{digest}{path.suffix}"
            self._by_path[address] = Asset(content, gzip.compress(content, 9, mtime=0), _TYPES[path.suffix])
            self._address[path.name] = address

    def find(self, address: str) -> Asset | None:
        """Return the file at an address."""
        return self._by_path.get(address)

    def address(self, name: str) -> str:
        """Return the address of a file by its name; empty if it was not packaged."""
        return self._address.get(name, "")


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.suffix in _TYPES and path.is_file())
