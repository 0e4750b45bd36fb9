r"""Escapes of JSON and HTML: a secret is found behind them, at the bytes it was made from."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.detect.views.escapes import escape_view
from tests.detect.fakes import engine, hashed, only
from tests.effort import examples

SECRET = b"0123456789abcdef"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        (rb'{"a":"tok\u005f0123456789abcdef"}', b"0123456789abcdef"),
        (rb"x=tok_01234567\u0038\u0039abcdef;", rb"01234567\u0038\u0039abcdef"),
        (rb"x=tok_0123456789abcde\u0066", rb"0123456789abcde\u0066"),
        (rb"x=tok_\u0030123456789abcdef", rb"\u0030123456789abcdef"),
    ],
)
def test_a_secret_is_found_at_the_bytes_it_was_made_from(text: bytes, secret: bytes) -> None:
    data = b"one\ntwo\n" + text + b"\nlast"
    found = only(engine().scan(data))
    assert (found.secret, found.via, found.line) == (hashed(SECRET), ("escapes",), 3)
    assert data[found.start : found.end] == secret


@pytest.mark.parametrize(
    ("escaped", "plain"),
    [
        (rb"b\/c", b"b/c"),
        (rb"b\u003dc", b"b=c"),
        (rb"b\u002Fc", b"b/c"),
        (b"b&quot;c", b'b"c'),
        (b"b&#34;c", b'b"c'),
        (b"b&#39;c", b"b'c"),
        (b"b&#47;c", b"b/c"),
        (b"b&#x2f;c", b"b/c"),
        (b"b&#x3D;c", b"b=c"),
    ],
)
def test_each_form_of_escape_is_decoded(escaped: bytes, plain: bytes) -> None:
    view = escape_view(b"far\n\na" + escaped + b"d\nafter")
    assert view is not None
    assert view[1] == b"\na" + plain + b"d\n"


@examples(60)
@given(
    parts=st.lists(
        st.sampled_from(["a", "/", '"', "\n", "\\/", "\\u003d", "&quot;", "&#39;", " ", "x" * 1500]), max_size=40
    )
)
def test_every_span_of_a_view_leads_to_bytes_that_decode_to_it(parts: list[str]) -> None:
    data = "".join(parts).encode()
    view = escape_view(data)
    if view is None:
        return
    _, text, locate = view
    assert len(text) <= len(data) + 1
    for at in (at for at in range(0, len(text), 7) if text[at : at + 1] != b"\n"):
        start, end = locate(at, at + 1)
        source = data[start:end]
        assert text[at : at + 1] in (
            source,
            {b"\\/": b"/", b"\\u003d": b"=", b"&quot;": b'"', b"&#39;": b"'"}.get(source),
        )


def test_a_value_with_an_escape_is_scanned_among_many() -> None:
    cells = [b"nothing", rb'"tok\u005f0123456789abcdef"', b"more"]
    assert set(engine().scan_many(cells)) == {1}


@pytest.mark.parametrize(
    "text",
    [
        'key = "{a}" + "{b}"',
        "$key = '{a}' . '{b}';",
        'Const ApiKey As String = "{a}" & "{b}"',
        'key = "{a}" +\n    "{b}"',
        'key = "{a}"\n    + "{b}"',
        'API_SECRET = (\n    "{a}"\n    "{b}"\n)',
    ],
)
def test_a_value_of_two_literals_is_one_value(text: str) -> None:
    first, second = "wX7q" * 4, "Lp0z" * 4
    data = text.format(a=first, b=second).encode()
    view = escape_view(data)
    assert view is not None
    _, decoded, locate = view
    start = decoded.index((first + second).encode())
    assert locate(start, start + 32) == (data.index(first.encode()), data.index(second.encode()) + 16)


@pytest.mark.parametrize(
    "text", ['"a" + "b"', '["abcdefgh", "ijklmnop"]', '"the end " + "of a line"', '"abcdefgh" + name']
)
def test_other_texts_are_not_joined(text: str) -> None:
    assert escape_view(text.encode()) is None
