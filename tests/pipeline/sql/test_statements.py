"""Statements are found by their names."""

import pytest

from strandline.errors import InvalidInput
from strandline.pipeline.sql.statements import parse_statements


def test_a_file_is_split_at_its_names() -> None:
    text = "-- about\n-- name: one\nSELECT 1\n\n-- name: two\nSELECT\n  2 -- name: not this\n"
    assert parse_statements(text) == {"one": "SELECT 1", "two": "SELECT\n  2 -- name: not this"}


@pytest.mark.parametrize("text", ["-- name: a\n-- name: b\nSELECT 2", "-- name: a\nSELECT 1\n-- name: a\nSELECT 2"])
def test_names_without_a_statement_or_used_twice_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="a name of its own and a body"):
        parse_statements(text)
