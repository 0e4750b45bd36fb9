"""The model of scale: its page is what it writes, a growing scan costs more, and the next decade is foretold."""

from pathlib import Path

import pytest

from benchmarks._page import PAGE, kept_sections
from benchmarks._scale import (
    LARGE,
    MARKER,
    SCALE_PAGE,
    SMALL,
    Terms,
    checked,
    objects_within,
    page,
    predict,
    terms_of,
)

ROOT = Path(__file__).parent.parent
STEPS = ("plan", "work", "settle", "rescan", "compaction")
FEW = Terms(dict.fromkeys(STEPS, 10.0), 80.0, 500.0, 200.0)
MANY = Terms(dict.fromkeys(STEPS, 20.0), 80.0, 590.0, 290.0)


def section() -> str:
    return kept_sections((ROOT / PAGE).read_text())["lake"]


def test_the_page_has_the_tables_that_the_benchmark_makes() -> None:
    text = (ROOT / SCALE_PAGE).read_text()
    assert {match[2] for match in MARKER.finditer(text)} == {"checked", "predicted"}
    assert page(text, section()) == text, "run python -m benchmarks._scale"


def test_what_a_hundred_thousand_items_foretell_of_a_million_is_near_what_was_measured() -> None:
    """A step that grew with the square of the items would be ten times what was foretold."""
    for step, (foretold, measured) in checked(terms_of(section(), SMALL), terms_of(section(), LARGE)).items():
        assert measured < 4 * foretold, step


def test_memory_goes_on_in_a_straight_line() -> None:
    assert predict(FEW, MANY, LARGE, 1).worker_mb == pytest.approx(290)
    assert predict(FEW, MANY, LARGE + 9 * (LARGE - SMALL), 1).worker_mb == pytest.approx(290 + 9 * 90)
    assert objects_within(290, FEW, MANY) == pytest.approx(LARGE)


def test_executors_shorten_what_tasks_do_and_nothing_else() -> None:
    one, ten = predict(FEW, MANY, 10**8, 10), predict(FEW, MANY, 10**8, 100)
    for step in ("plan", "work", "settle"):
        assert ten.seconds[step] == pytest.approx(one.seconds[step] / 10)
    for step in ("listing", "scanner state"):
        assert ten.seconds[step] == one.seconds[step]
    assert one.seconds["listing"] == pytest.approx(10**8 / 1_000 * 0.1)
    assert ten.gets > one.gets > 10**8
    assert one.dollars > (one.lists + one.puts) * 5e-6 + one.gets * 4e-7
