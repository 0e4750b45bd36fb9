"""Templates: how values become text, and how a page is rendered.

Invariants: every value is escaped by the template engine; a name out of scanned data is shown without characters that a
browser would hide, reorder or take for commands (`visible`), and set apart from the direction of its neighbours.
"""

import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

from strandline.extras import needs
from strandline.web import charts

with needs("web"):
    import jinja2
    from markupsafe import Markup

TEXT_MAX = 2_000
_KIB = 1024
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Return the template engine, with all templates of this package."""
    engine = jinja2.Environment(
        loader=jinja2.PackageLoader("strandline.web", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    engine.filters |= {
        "ago": ago,
        "bytes": size,
        "count": count,
        "lines": lines,
        "name": named,
        "number": "{:,}".format,
        "query": query,
        "rate": rate,
        "static": static_path,
        "utc": utc,
        "visible": visible,
        "duration": charts.duration,
    }
    engine.globals |= {"charts": charts}
    return engine


@lru_cache(maxsize=1)
def static_files() -> dict[str, bytes]:
    """Return the files that browsers load, by name."""
    return {file.name: file.read_bytes() for file in (files("strandline.web") / "static").iterdir() if file.is_file()}


def static_path(name: str) -> str:
    """Return the path of a file that browsers load and keep; another version of it has another path."""
    return f"/static/{name}?{sha256(static_files()[name]).hexdigest()[:12]}"


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a page."""
    return environment().get_template(template).render(values)


def visible(text: str, most: int = TEXT_MAX) -> str:
    """Return a text of which every character is seen: control and direction characters are written as codes."""
    if len(text) > most:
        text = f"{text[: most * 2 // 3]} … {text[-most // 3 :]}"
    if text.isascii() and text.isprintable():
        return text
    return "".join(_code(one) if unicodedata.category(one) in _HIDDEN else one for one in text)


def lines(text: str) -> str:
    """Return a text of several lines of which every character is seen."""
    return "\n".join(visible(line, len(line) or 1) for line in text.split("\n"))


def named(text: str) -> Markup:
    """Return a name out of scanned data, on its own as far as writing direction goes."""
    return Markup("<bdi>{}</bdi>").format(visible(text))


def _code(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"  # noqa: PLR2004


def utc(time_ns: int) -> str:
    """Return a time to the second, with its zone; a dash for none."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if time_ns else "–"  # noqa: RUF001 - a dash


def ago(time_ns: int) -> str:
    """Return how long ago a time was, as people say it; a dash for none."""
    if not time_ns:
        return "–"  # noqa: RUF001 - a dash
    seconds = datetime.now(UTC).timestamp() - time_ns / 1e9
    return f"{charts.duration(seconds)} ago" if seconds >= 1 else "now"


def size(value: float) -> str:
    """Return a number of bytes in a fitting unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < _KIB:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= _KIB
    return f"{value:,.1f} TiB"


def count(value: int, one: str, many: str = "") -> str:
    """Return a number with its noun."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def rate(value: float | None, unit: str = "/s") -> str:
    """Return a rate; a dash while it is unknown."""
    if value is None:
        return "–"  # noqa: RUF001 - a dash
    return f"{value:,.0f}{unit}" if value >= 10 or value == 0 else f"{value:,.1f}{unit}"  # noqa: PLR2004 - two digits are enough


def query(values: Mapping[str, Any], **changes: object) -> str:
    """Return a query string of values with changes; empty ones are left out."""
    merged = {**values, **changes}
    return "?" + urlencode(
        [(name, value) for name, value in merged.items() if value not in ("", None, [], ())], doseq=True
    )
