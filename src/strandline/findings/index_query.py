"""A question to an index of findings.

Invariants: several values of one filter are "or", several filters are "and"; words are texts and no patterns.
"""

from dataclasses import dataclass
from typing import Literal

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


def place_pattern(place: str) -> str:
    """Return the pattern of a place: `*` stands for any text, and without one the place may stand anywhere."""
    literal = _literal(place)
    return literal.replace("*", "%") if "*" in place else f"%{literal}%"


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", r"\%").replace("_", r"\_")
