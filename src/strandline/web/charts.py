"""Charts as SVG of our own: lines over time, bars, a map of shards, and points on a timeline.

Invariants: pure functions of numbers and texts; texts are escaped; no style and no script is inside, so that the strict
policy of the site holds (colours are classes); every chart has a text alternative with the same figures.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from strandline.extras import needs

with needs("web"):
    from markupsafe import Markup, escape

Point = tuple[float, float]
_WIDTH, _HEIGHT = 240.0, 44.0
_CELL, _GAP = 13, 3
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


class Cell(NamedTuple):
    """A cell of a map: its class, the text that names it, and the anchor of what it stands for."""

    kind: str
    label: str
    link: str = ""


class Mark(NamedTuple):
    """A point on a timeline."""

    at_s: float
    kind: str
    label: str


def line(
    points: Sequence[Point], label: str, *, kind: str = "line", width: float = _WIDTH, is_told: bool = False
) -> Markup:
    """Return a line over time, with its last and highest value below it if asked; it says so where there is none."""
    if len(points) < 2:  # noqa: PLR2004 - a line needs two
        return Markup('<p class="quiet chart-empty">not enough seen yet</p>')
    first, last = points[0][0], points[-1][0]
    most = max(value for _, value in points) or 1.0
    span = (last - first) or 1.0
    drawn = [((at - first) / span * width, _HEIGHT - 3 - value / most * (_HEIGHT - 8)) for at, value in points]
    path = " ".join(f"{'L' if number else 'M'}{x:.1f} {y:.1f}" for number, (x, y) in enumerate(drawn))
    area = f"{path} L{width:.1f} {_HEIGHT:.1f} L0 {_HEIGHT:.1f} Z"
    told = Markup('<p class="quiet chart-note">now {}, at most {} in the last {}</p>').format(
        _value(points[-1][1]), _value(max(value for _, value in points)), duration(span)
    )
    drawn_line = Markup(
        '<svg class="chart {kind}" viewBox="0 0 {width:.0f} {height:.0f}" preserveAspectRatio="none" role="img" '
        'aria-label="{label}"><title>{label}</title><path class="area" d="{area}"/>'
        '<path class="stroke" d="{path}"/></svg>'
    ).format(kind=kind, width=width, height=_HEIGHT, label=label, area=area, path=path)
    return drawn_line + told if is_told else drawn_line


def _value(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:,.1f}"  # noqa: PLR2004 - a digit is enough


def deltas(points: Sequence[Point]) -> list[Point]:
    """Return the growth per second between points."""
    return [
        (late[0], max(0.0, (late[1] - early[1]) / (late[0] - early[0])))
        for early, late in pairwise(points)
        if late[0] > early[0]
    ]


def share(parts: Sequence[tuple[str, float]], label: str) -> Markup:
    """Return one bar of coloured parts, of a whole."""
    whole = sum(value for _, value in parts) or 1.0
    drawn, at = Markup(), 0.0
    for kind, value in parts:
        width = value / whole * 100
        if width > 0:
            drawn += Markup('<rect class="{}" x="{:.3f}" width="{:.3f}" y="0" height="8"/>').format(kind, at, width)
        at += width
    return Markup(
        '<svg class="share" viewBox="0 0 100 8" preserveAspectRatio="none" role="img" aria-label="{0}">'
        "<title>{0}</title>{1}</svg>"
    ).format(label, drawn)


def shard_map(cells: Sequence[Cell], label: str, *, columns: int = 50) -> Markup:
    """Return a map of cells, in rows; a cell with a link can be opened."""
    step = _CELL + _GAP
    rows = max(1, -(-len(cells) // columns))
    drawn = Markup(  # noqa: S704 - every text in a cell is escaped
        "".join(_cell(cell, number % columns * step, number // columns * step) for number, cell in enumerate(cells))
    )
    return Markup('<svg class="map" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>').format(
        columns * step - _GAP, rows * step - _GAP, label, drawn
    )


def _cell(cell: Cell, x: int, y: int) -> str:
    """Return a cell; put together by hand, because a map has a thousand and `Markup.format` takes 20 µs for each."""
    label = escape(cell.label)
    rect = (
        f'<rect class="cell {escape(cell.kind)}" x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" rx="2">'
        f"<title>{label}</title></rect>"
    )
    return f'<a href="{escape(cell.link)}" aria-label="{label}">{rect}</a>' if cell.link else rect


def timeline(marks: Iterable[Mark], now_s: float, label: str, *, width: float = 720.0) -> Markup:
    """Return points between the first one and now; the axis is in ages."""
    chosen = sorted(marks)
    if not chosen:
        return Markup('<p class="quiet chart-empty">nothing yet</p>')
    span = max(now_s - chosen[0].at_s, 1.0)
    drawn = Markup().join(
        Markup('<circle class="mark {}" cx="{:.1f}" cy="16" r="{}"><title>{}</title></circle>').format(
            kind, 8 + (at_s - chosen[0].at_s) / span * (width - 16), 5 if kind == "whole" else 3, text
        )
        for at_s, kind, text in chosen
    )
    return Markup(
        '<svg class="timeline" viewBox="0 0 {width:.0f} 40" role="img" aria-label="{label}"><title>{label}</title>'
        '<line class="axis" x1="8" x2="{end:.0f}" y1="16" y2="16"/>{drawn}'
        '<text x="8" y="36">{first} ago</text><text class="end" x="{end:.0f}" y="36">now</text></svg>'
    ).format(width=width, end=width - 8, label=label, drawn=drawn, first=duration(span))


def duration(seconds: float) -> str:
    """Return a duration in its two largest units."""
    whole = max(0, round(seconds))
    if whole < _MINUTE_S:
        return f"{whole} s"
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S} s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S} h"
