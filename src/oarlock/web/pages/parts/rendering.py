"""Pages from templates: what every template can use, and the frame around it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup, escape

import oarlock
from oarlock.config import Config
from oarlock.insight.drawing import columns, gantt, marks, squares, time_plot
from oarlock.web import sign_in
from oarlock.web.identity import Caller
from oarlock.web.pages.parts import formats, messages
from oarlock.web.pages.parts.assets import AssetTable
from oarlock.web.pages.parts.registry import PAGES
from oarlock.web.verbs.users.portal import NoticeView

TEMPLATES = Path(__file__).parents[2] / "templates"
_BACKTICKS = re.compile("`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What stands around every page: whose it is, in which language, at which address and instant."""

    config: Config
    path: str
    now: int
    caller: Caller | None
    secret: str | None
    language: str
    notices: Sequence[NoticeView] = ()

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self.config.cluster_name

    @property
    def user(self) -> str:
        """The name of whoever looks."""
        return "" if self.caller is None else self.caller.name


class Renderer:
    """Makes pages. Templates are compiled once and shared by all threads."""

    def __init__(self) -> None:
        self.assets = AssetTable()
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "number": formats.number,
            "decimal": formats.decimal,
            "percent": formats.percent,
            "size": formats.size,
            "duration": formats.duration,
            "rough": formats.rough,
            "exact": formats.exact,
            "seconds": formats.seconds,
            "soft": _soft,
            "with_code": with_code,
            "part": lambda text: quote(str(text), safe=""),
        }
        self._environment.globals |= {
            "asset": self.assets.address,
            "version": oarlock.__version__,
            "languages": messages.LANGUAGES,
            "meter": _drawn(marks.meter),
            "bar": _drawn(marks.efficiency_bar),
            "spark": _drawn(marks.sparkline),
            "patterns": _drawn(squares.patterns),
            "node_squares": _drawn(squares.node_squares),
            "square": _drawn(squares.square),
            "draw_gantt": _drawn(gantt.draw_gantt),
            "plot_svg": _drawn(time_plot.draw),
            "plot_number": time_plot.write,
            "draw_columns": _drawn(columns.draw_columns),
            "WIDTH_IN_MAIN": columns.WIDTH_IN_MAIN,
            "colour": marks.colour_of,
            "in_unit": formats.in_unit_of,
        }

    def render(self, template: str, values: Mapping[str, Any], around: Surroundings) -> bytes:
        """Return a page; runs in any thread."""
        translate = messages.translator(around.language)
        frame = {
            "around": around,
            "t": translate,
            "nav": _navigation(around.caller, around.config),
            "clock": lambda instant: formats.clock(instant, around.now),
            "form_fields": lambda: _form_fields(around.secret),
            "link": _link,
        }
        return self._environment.get_template(template).render(**frame, **values).encode()


def with_code(text: object) -> Markup:
    """Return a sentence in which what stands between backticks is code, as on a terminal."""
    return Markup(_BACKTICKS.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 - it was escaped


def _drawn(draw: Any) -> Any:
    """Return a function whose text a template inserts as it is: drawings escape what they show themselves."""
    return lambda *args, **options: Markup(draw(*args, **options))  # noqa: S704


def _soft(text: str) -> Markup:
    """Return a text that may be broken after commas and slashes."""
    return Markup("<wbr>").join(re.split(r"(?<=[,/])", text))


def _navigation(caller: Caller | None, config: Config) -> list[tuple[str, str]]:
    """Return the addresses and words of the navigation, in their order."""
    is_staff, is_admin = caller is not None and caller.staff, caller is not None and caller.admin
    pages = [
        page
        for page in PAGES
        if page.nav and page.source(config) and (is_staff or not page.staff) and (is_admin or not page.admin)
    ]
    return [(page.path, page.nav) for page in sorted(pages, key=lambda page: page.place)]


def _link(path: str, **query: Any) -> str:
    """Return an address with what follows the question mark; what is empty is left out."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


def _form_fields(secret: str | None) -> Markup:
    """Return the hidden fields of a form: a request id of its own, and the session's token for it."""
    if secret is None:
        return Markup("")
    request_id, token = sign_in.new_form(secret)
    field = Markup('<input type="hidden" name="{}" value="{}">')
    return field.format("request_id", request_id) + field.format("form_token", token)
