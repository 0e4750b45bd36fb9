"""A question to an index of findings, and its condition in SQL.

Invariants: values never become part of a statement, they are bound; several values of one filter are "or", several
filters are "and".
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Show = Literal["current", "gone", "all"]


@dataclass(frozen=True)
class FindingQuery:
    """Conditions on findings, and their order; an empty one matches every current finding."""

    text: str = ""
    place: str = ""
    rules: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    confidence: int = 0
    is_new: bool = False
    group: str = ""
    show: Show = "current"
    sort: str = "place"

    def shows(self, *, is_gone: bool) -> bool:
        """Return whether findings that are gone, or those that are not, are asked for."""
        return self.show == "all" or is_gone == (self.show == "gone")


class Where(NamedTuple):
    """A condition with its values."""

    sql: str
    values: tuple[object, ...]


def where_of(query: FindingQuery) -> Where:
    """Return the condition of a query."""
    parts: list[str] = []
    values: list[object] = []

    def add(part: str, *given: object) -> None:
        parts.append(part)
        values.extend(given)

    for word in query.text.casefold().split():
        add(r"haystack LIKE ? ESCAPE '\'", f"%{_literal(word)}%")
    if query.place:
        add(r"path LIKE ? ESCAPE '\'", _place_pattern(query.place))
    for column, chosen in (("rule", query.rules), ("state", query.states), ("source_name", query.sources)):
        if chosen:
            add(f"{column} IN ({', '.join('?' * len(chosen))})", *chosen)
    if query.confidence:
        add("confidence >= ?", query.confidence)
    if query.is_new:
        add("is_new = 1")
    if query.group:
        add("hex(substr(secret, 1, 6)) = ?", query.group.upper())
    if query.show != "all":
        add("is_gone = ?", int(query.show == "gone"))
    return Where(f"WHERE {' AND '.join(parts)}" if parts else "", tuple(values))


def _place_pattern(place: str) -> str:
    """Return the pattern of a place: `*` stands for any text, and without one the place may stand anywhere."""
    literal = _literal(place)
    return literal.replace("*", "%") if "*" in place else f"%{literal}%"


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")
