"""The place of a secret in packed and encoded text is the line of that text, with the inner place beside it."""

import base64
import gzip
import io
import zipfile

import pytest

from strandline.detect import Found
from strandline.detect.locations import format_display, format_url, location_of, parse_url
from tests.detect.fakes import engine_of, only

RULES = "[[rules]]\nid = 'alpha'\nregex = '''alpha_([0-9]{8})'''\n"
INNER = b"first line of what is packed\n  alpha_12345678 and more\nlast line of what is packed\n"


def found(data: bytes, path: str = "app.yaml") -> Found:
    return only(engine_of(RULES).scan(data, path))


def zipped(name: str, data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
    return packed.getvalue()


@pytest.mark.parametrize(
    ("packed", "inner", "via"),
    [
        (gzip.compress(INNER, mtime=0), "2:9", ("base64", "gzip")),
        (gzip.compress(gzip.compress(INNER, mtime=0), mtime=0), "2:9", ("base64", "gzip", "gzip")),
        (zipped("in/side.txt", INNER), "in/side.txt:2:9", ("base64", "zip:in/side.txt")),
        (base64.b64encode(gzip.compress(INNER, mtime=0)), "2:9", ("base64", "base64", "gzip")),
        (INNER, "", ("base64",)),
    ],
)
def test_encoded_text_has_the_place_and_what_it_holds_the_inner_one(
    packed: bytes, inner: str, via: tuple[str, ...]
) -> None:
    one = found(b"a: 1\nb:\n  data: " + base64.b64encode(packed) + b"\n")
    assert (one.path, one.line, one.inner, one.via) == ("app.yaml", 3, inner, via)
    assert one.column >= 9
    where = location_of("file", one)
    assert parse_url(format_url(where)) == where
    beside = f" (inside: {inner})" if inner else ""
    assert format_display(where) == f"app.yaml:3:{one.column}{beside}"


def test_a_member_of_an_archive_keeps_its_own_lines() -> None:
    one = found(zipped("b.txt", INNER), "a.zip")
    assert (one.path, one.line, one.column, one.inner) == ("a.zip!b.txt", 2, 9, "")
    one = found(gzip.compress(INNER), "a.gz")
    assert (one.path, one.line, one.inner) == ("a.gz", 2, "")
    text = b"x\n" + base64.b64encode(gzip.compress(INNER)) + b"\n"
    one = found(zipped("b.txt", text), "a.zip")
    assert (one.path, one.line, one.inner) == ("a.zip!b.txt", 2, "2:9")


def test_a_comment_on_the_line_of_the_encoded_text_allows_it() -> None:
    one = found(b"data: " + base64.b64encode(gzip.compress(INNER)) + b" # gitleaks:allow\n")
    assert one.comment == "gitleaks:allow"
