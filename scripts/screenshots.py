"""Take pictures of every page: a contact sheet in `build/screenshots`, and the two of the README in `docs/pictures`.

Needs Chromium (Debian's), Pillow and root, as the tests of the portal do.
"""

import re
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image, ImageDraw

from oarlock.store.engine.opening import open_database
from tests.portal.browsing import signed_in
from tests.portal.chromium import NARROW, WIDE, BrowserThread, window
from tests.portal.pages import PAGES, STAFF_PAGES
from tests.portal.site import OWNER, made_up_site

ROOT = Path(__file__).resolve().parent.parent
SHEET = ROOT / "build/screenshots"
PICTURES = {"/": "overview", "/jobs/1": "job"}
LOOKS = (("light", WIDE), ("dark", WIDE), ("light", NARROW))
CELL_WIDE, CELL_HIGH, GAP = 420, 560, 16
_WAIT = 700  # milliseconds in which curves are drawn


def take(browser, *, port: int, cookies: dict[str, str], pages: list[str]) -> dict[tuple[str, str, int], bytes]:
    """Return a picture of each of these pages in each look."""
    pictures = {}
    for scheme, width in LOOKS:
        with window(browser, port, cookies, width=width, scheme=scheme) as opened:
            for path in pages:
                page = opened.open(path)
                page.wait_for_timeout(_WAIT)
                pictures[path, scheme, width] = page.screenshot(full_page=True)
    return pictures


def sheet(pictures: dict[tuple[str, str, int], bytes]) -> Image.Image:
    """Put all pictures on one sheet: a row a page, a column a look."""
    pages = [*PAGES, *STAFF_PAGES]
    whole = Image.new("RGB", (GAP + (CELL_WIDE + GAP) * len(LOOKS), GAP + (CELL_HIGH + GAP) * len(pages)), "#808890")
    for row, path in enumerate(pages):
        for column, look in enumerate(LOOKS):
            picture = Image.open(BytesIO(pictures[path, *look])).convert("RGB")
            picture.thumbnail((CELL_WIDE, 4000))
            place = GAP + column * (CELL_WIDE + GAP), GAP + row * (CELL_HIGH + GAP)
            whole.paste(picture.crop((0, 0, picture.width, min(picture.height, CELL_HIGH))), place)
        ImageDraw.Draw(whole).text((GAP, row * (CELL_HIGH + GAP) + 2), path, fill="white")
    return whole


def main() -> int:
    """Serve the made-up cluster, take the pictures and write them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "oarlock.db"
        with open_database(path, create=True, marker=Path(folder) / "oarlock.db.created"):
            pass
        with made_up_site(path) as site:
            browser = BrowserThread()
            try:
                pictures = {}
                for user, pages in ((OWNER, PAGES), ("root", STAFF_PAGES)):
                    cookies = signed_in(site, user).cookies
                    pictures |= browser.run(take, port=site.port, cookies=cookies, pages=pages)
            finally:
                browser.close()
    SHEET.mkdir(parents=True, exist_ok=True)
    sheet(pictures).save(SHEET / "sheet.png")
    for (path, scheme, width), picture in pictures.items():
        name = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-") or "overview"
        (SHEET / f"{name[:40]}.{scheme}.{width}.png").write_bytes(picture)
    for path, name in PICTURES.items():
        shown = Image.open(BytesIO(pictures[path, "light", WIDE])).convert("RGB")
        shown.quantize(128, dither=Image.Dither.NONE).save(ROOT / f"docs/pictures/{name}.png", optimize=True)
    print(f"{len(pictures)} pictures: {SHEET / 'sheet.png'}, docs/pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
