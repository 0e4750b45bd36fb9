"""Which hits of a frame count: against the plain definitions, in any order."""

import random

from hypothesis import given
from hypothesis import strategies as st

from strandline.detect.matching.matcher import Hit
from strandline.detect.matching.selection import selected
from strandline.detect.rules.rule import Required, Rule
from tests.detect.fakes import hashed
from tests.effort import examples

SECRET = hashed(b"x")
RULES = (
    Rule("a", "a", tags=("provider:a",)),
    Rule("b", "b"),
    Rule("c", "c", required=(Required("d", 2, 5), Required("b", None, None))),
    Rule("d", "d", skip_report=True),
    Rule("e", "e", required=(Required("a", None, 3),)),
    Rule("f", "f", path="x$"),
)
FILE_RULE = 5


def located(hit: Hit) -> tuple[int, int]:
    return hit.start // 20 + 1, hit.start % 20 + 1


def plainly(hits: list[Hit]) -> set[Hit]:
    """Return what counts, by the definitions alone."""
    counted = set()
    for hit in hits:
        rule = RULES[hit.rule]
        if not rule.skip_report and all(any(_is_near(hit, other, need) for other in hits) for need in rule.required):
            counted.add(hit)
    best: dict[tuple[int, int], Hit] = {}
    for hit in sorted(counted, key=_order):
        best.setdefault((hit.start, hit.end), hit)
    of_providers = [hit for hit in best.values() if not RULES[hit.rule].is_generic]
    of_files = [hit for hit in best.values() if hit.rule == FILE_RULE and not _is_on(hit, of_providers)]
    others = [hit for hit in best.values() if RULES[hit.rule].is_generic and hit.rule != FILE_RULE]
    return {*of_providers, *of_files, *(hit for hit in others if not _is_on(hit, of_providers + of_files))}


def _order(hit: Hit) -> tuple[bool, bool, int, str]:
    return RULES[hit.rule].is_generic, hit.rule != FILE_RULE, -hit.confidence, RULES[hit.rule].id


def _is_on(hit: Hit, others: list[Hit]) -> bool:
    return any(hit.start < other.end and other.start < hit.end for other in others)


def _is_near(hit: Hit, other: Hit, need: Required) -> bool:
    (line, column), (other_line, other_column) = located(hit), located(other)
    return (
        RULES[other.rule].id == need.rule_id
        and (need.within_lines is None or abs(line - other_line) <= need.within_lines)
        and (need.within_columns is None or abs(column - other_column) <= need.within_columns)
    )


@examples(100)
@given(
    hits=st.lists(
        st.builds(
            lambda rule, start, size, sure: Hit(rule, start, start + size, SECRET, sure),
            st.integers(0, 5),
            st.integers(0, 150),
            st.integers(1, 12),
            st.integers(0, 2),
        ),
        max_size=25,
        unique_by=lambda hit: hit[:3],
    ),
    seed=st.integers(0, 100),
)
def test_what_counts_follows_from_the_definitions_in_any_order(hits: list[Hit], seed: int) -> None:
    shuffled = random.Random(seed).sample(hits, len(hits))
    assert set(selected(shuffled, RULES, located)) == plainly(hits)
