"""Files are handed to workers whole, those of one Spark session together, and what takes longest first."""

from pathlib import Path

from tests import scheduling

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))


def test_every_path_that_is_named_exists() -> None:
    named = scheduling._SLOW  # noqa: SLF001 - what is looked through
    assert [start for start in named if not any(file.startswith(start) for file in FILES)] == []


def test_what_shares_a_spark_session_is_one_unit_and_comes_first() -> None:
    ordered = sorted(FILES, key=scheduling.rank_of)
    units = [scheduling.unit_of(file) for file in ordered]
    together = units.count("spark")
    assert units[:together] == ["spark"] * together
    assert len(set(units)) == len(units) - together + 1


def test_a_worker_that_begins_with_what_is_slow_comes_before_those_with_the_rest() -> None:
    slow = [file for file in FILES if scheduling.rank_of(file) == 1]
    assert "tests/spark/test_killed.py" in slow
    assert all(scheduling.unit_of(file) == file for file in slow)
