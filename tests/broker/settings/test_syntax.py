"""The configuration language: what each form means, and where a message says that something is wrong."""

from pathlib import Path
from typing import Any

import pytest

from strandline.broker.settings.errors import ConfigurationRefused
from strandline.broker.settings.syntax import Value, parse_file
from strandline.errors import InvalidInput


def parse(text: str, environment: dict[str, str] | None = None, **files: str) -> dict[str, Value]:
    """Parse a text as `c.conf`, beside other files."""
    texts = {"c.conf": text, **{f"{name}.conf": content for name, content in files.items()}}

    def read(path: Path) -> str:
        if path.name not in texts:
            raise InvalidInput(f"open {path}: no such file or directory")
        return texts[path.name]

    return parse_file(Path("c.conf"), environment or {}, read)


def plain(found: object) -> Any:  # noqa: ANN401 - whatever was parsed
    """Return parsed values without their places."""
    if isinstance(found, Value):
        return plain(found.content)
    if isinstance(found, dict):
        return {name: plain(value) for name, value in found.items()}
    if isinstance(found, list):
        return [plain(value) for value in found]
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 1", {"a": 1}),
        ("a = 1\nb 2", {"a": 1, "b": 2}),
        ("a: 1; b: 2, c: 3", {"a": 1, "b": 2, "c": 3}),
        ('{"a": [1, {"b": "c"}], "d": true}', {"a": [1, {"b": "c"}], "d": True}),
        ("a { b { c: d } }", {"a": {"b": {"c": "d"}}}),
        ("a {\n b:\n  c\n d = 'e f'\n}", {"a": {"b": "c", "d": "e f"}}),
        ("a: [x\n y\n 'z']", {"a": ["x", "y", "z"]}),
        ("a: [x, y,\n]", {"a": ["x", "y"]}),
        ("# note\na: 1 # one\nb: x // two\n", {"a": 1, "b": "x"}),
        ("a: http://x//y", {"a": "http://x//y"}),
        ("a: 64MB\nb: 1k\nc: 2KiB\nd: 1G", {"a": 64 << 20, "b": 1000, "c": 2048, "d": 10**9}),
        ("a: 2m30s\nb: 10s\nc: -1\nd: 1.5", {"a": "2m30s", "b": "10s", "c": -1, "d": 1.5}),
        ("a: 127.0.0.1:-1\nb: 10.0.0.1", {"a": "127.0.0.1:-1", "b": "10.0.0.1"}),
        ("a: yes\nb: OFF\nc: 'true'", {"a": True, "b": False, "c": "true"}),
        ('a: "x\\ty\\x41\\"z"\nb: p\\nq', {"a": 'x\tyA"z', "b": "p\nq"}),
        ("a: (\none\ntwo )\n)\n", {"a": "\none\ntwo )\n"}),
        ("a: $2a$11$abc", {"a": "$2a$11$abc"}),
        ("a: 1\r\nb: c\r\n", {"a": 1, "b": "c"}),
    ],
)
def test_each_form_means_what_it_means_to_nats_server(text: str, expected: object) -> None:
    assert plain(parse(text)) == expected


def test_variables_come_from_enclosing_blocks_and_then_from_the_environment() -> None:
    text = "X = 1\na { X: 2\n b { c: $X } }\nd: $X\ne: $HOME_PORT\nf: '$X'"
    found = parse(text, {"HOME_PORT": "4333", "X": "9"})
    assert plain(found) == {"X": 1, "a": {"X": 2, "b": {"c": 2}}, "d": 1, "e": 4333, "f": "$X"}
    assert found["X"].is_variable
    assert not found["d"].is_variable


def test_a_variable_that_refers_to_itself_is_refused() -> None:
    with pytest.raises(ConfigurationRefused, match=r"\$X refers to itself"):
        parse("a: $X", {"X": "{ b: $Y }", "Y": "$X"})


def test_a_file_includes_others_where_it_stands() -> None:
    found = parse("a { include ./u.conf }\ninclude 'v.conf'", u="user: ann", v="port: 1\nX: 2")
    assert plain(found) == {"a": {"user": "ann"}, "port": 1, "X": 2}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: {\n b: 1", r"c\.conf:2:6: Parse error on line 2: unexpected end of the file in a map"),
        ("a: [1", r"c\.conf:1:5: Parse error on line 1: unexpected end of the file in a list"),
        ("a: 1\nb: 'x", r"c\.conf:2:4: Parse error on line 2: a quoted text does not end"),
        (
            "a: 1.5MB",
            r"c\.conf:1:6: Parse error on line 1: expected a new line or a comment after a value, but got 'M'",
        ),
        ("a { b: 1 c: 2 }", r"c\.conf:1:9: Parse error on line 1: expected ',' or '}' in a map, but got 'c'"),
        ("= 1", r"c\.conf:1:0: Parse error on line 1: unexpected key separator '='"),
        ('a: "\\q"', r"c\.conf:1:4: Parse error on line 1: unknown escape 'q'"),
        ("a: $NOPE", r"c\.conf:1:0: variable reference for 'NOPE' can not be found"),
        ("include nope.conf", r"c\.conf:1:0: error parsing include file 'nope.conf': open nope.conf: no such file"),
        ("include c.conf", r"c\.conf:1:0: c\.conf refers to itself"),
        ("include ../here/c.conf", "refers to itself"),
        ("a: [;]", r"c\.conf:1:4: Parse error on line 1: expected a value, but got ';'"),
        ("a { b: }", r"c\.conf:1:7: Parse error on line 1: expected a value, but got '}'"),
        ("a: " + "[" * 101, "more than 100 blocks are within each other"),
        ("a:\n1", r"c\.conf:1:2: Parse error on line 1: expected a value, but found a new line"),
        ("a", r"c\.conf:1:1: Parse error on line 1: expected a value, but the file ends"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigurationRefused, match=message):
        parse(text)
