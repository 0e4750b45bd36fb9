"""The selection of a frame's hits: required rules matched too, no duplicates, the most specific rule wins.

Invariants: the outcome does not depend on the order of the hits; a hit of a provider's rule is never dropped for
one of a generic rule. Work grows with the hits, not with their square.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from strandline.detect.frames import Frame
from strandline.detect.matching.matcher import Hit
from strandline.detect.rules.rule import Required, Rule


@dataclass(frozen=True, slots=True)
class _Spot:
    line: int
    column: int


def selected(hits: Sequence[Hit], rules: Sequence[Rule], locate: Callable[[Hit], tuple[int, int]]) -> list[Hit]:
    """Return the selected hits of a frame; `locate` gives the line and the column of a hit."""
    if not hits:
        return []
    kept = _with_required(hits, rules, locate) if any(rules[hit.rule].required for hit in hits) else list(hits)
    return _most_specific([hit for hit in kept if not rules[hit.rule].skip_report], rules)


def _with_required(hits: Sequence[Hit], rules: Sequence[Rule], locate: Callable[[Hit], tuple[int, int]]) -> list[Hit]:
    spots: dict[str, list[_Spot]] = {}
    for hit in hits:
        spots.setdefault(rules[hit.rule].id, []).append(_Spot(*locate(hit)))
    kept = []
    for number in sorted({hit.rule for hit in hits}):
        own = [hit for hit in hits if hit.rule == number]
        near = [True] * len(own)
        for required in rules[number].required:
            others = spots.get(required.rule_id, [])
            near = [a and b for a, b in zip(near, _near(spots[rules[number].id], others, required), strict=True)]
        kept += [hit for hit, is_near in zip(own, near, strict=True) if is_near]
    return kept


def _near(spots: Sequence[_Spot], others: Sequence[_Spot], required: Required) -> list[bool]:
    """Return for each spot whether another is near: a window of lines slides over the others, their columns sorted."""
    lines = required.within_lines
    ordered = sorted(others, key=lambda spot: spot.line)
    columns: list[int] = []
    first = last = 0
    near = {}
    for spot in sorted(set(spots), key=lambda spot: spot.line):
        while last < len(ordered) and (lines is None or ordered[last].line <= spot.line + lines):
            insort(columns, ordered[last].column)
            last += 1
        while first < last and lines is not None and ordered[first].line < spot.line - lines:
            del columns[bisect_left(columns, ordered[first].column)]
            first += 1
        near[spot] = _has_near(columns, spot.column, required.within_columns)
    return [near[spot] for spot in spots]


def _has_near(columns: Sequence[int], column: int, within: int | None) -> bool:
    if within is None or not columns:
        return bool(columns)
    at = bisect_left(columns, column - within)
    return at < len(columns) and columns[at] <= column + within


def _most_specific(hits: list[Hit], rules: Sequence[Rule]) -> list[Hit]:
    if len(hits) < 2:  # noqa: PLR2004
        return hits
    best: dict[tuple[int, int, int], Hit] = {}
    for hit in hits:
        # A hit on a path has no span: every rule for it counts.
        span = (hit.start, hit.end, hit.rule if hit.start == hit.end else -1)
        if span not in best or _rank(hit, rules) < _rank(best[span], rules):
            best[span] = hit
    kept = list(best.values())
    # A provider's rule knows more than one for named files, and that more than a rule that a name in the text led to.
    for is_better in (_is_of_provider, _is_not_by_name):
        better = Spans((hit.start, hit.end) for hit in kept if is_better(rules[hit.rule]))
        kept = [hit for hit in kept if is_better(rules[hit.rule]) or not better.overlap(hit.start, hit.end)]
    return kept


def _is_of_provider(rule: Rule) -> bool:
    return not rule.is_generic


def _is_not_by_name(rule: Rule) -> bool:
    return not rule.is_generic or rule.is_for_named_files


def _rank(hit: Hit, rules: Sequence[Rule]) -> tuple[bool, bool, int, str]:
    rule = rules[hit.rule]
    return rule.is_generic, not rule.is_for_named_files, -hit.confidence, rule.id


class Spans:
    """Spans of a buffer, with a test for overlap."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._merged: list[list[int]] = []
        for start, end in sorted(spans):
            if self._merged and start < self._merged[-1][1]:
                self._merged[-1][1] = max(self._merged[-1][1], end)
            else:
                self._merged.append([start, end])

    def overlap(self, start: int, end: int) -> bool:
        """Return whether a span has a byte in common with one of these."""
        at = bisect_left(self._merged, end, key=lambda span: span[0]) - 1
        return at >= 0 and self._merged[at][1] > start


class Known:
    """The hits of a frame, for the views inside it, which often repeat them."""

    def __init__(self, frame: Frame, hits: Iterable[Hit]) -> None:
        self.frame = frame
        by_rule: dict[int, list[tuple[int, int]]] = {}
        for hit in hits:
            by_rule.setdefault(hit.rule, []).append((hit.start, hit.end))
        self._by_rule = {rule: Spans(spans) for rule, spans in by_rule.items()}
        self._all = Spans(span for spans in by_rule.values() for span in spans)

    def covers(self, hit: Hit, start: int, end: int, *, is_generic: bool) -> bool:
        """Return whether the frame has a hit of the same rule at a span, or of any rule if the hit is generic."""
        spans = self._all if is_generic else self._by_rule.get(hit.rule)
        return spans is not None and spans.overlap(start, end)


def news(frame: Frame, hits: Iterable[Hit], known: Sequence[Known], rules: Sequence[Rule]) -> list[Hit]:
    """Return the hits of a view that the enclosing frames lack; `known` goes from the outside in."""
    kept = []
    for hit in hits:
        inner, (start, end) = frame, (hit.start, hit.end)
        for outer in reversed(known):
            start, end = inner.locate(start, end)
            if outer.covers(hit, start, end, is_generic=rules[hit.rule].is_generic):
                break
            inner = outer.frame
        else:
            kept.append(hit)
    return kept
