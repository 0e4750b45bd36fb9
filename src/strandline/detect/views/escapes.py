r"""Views of text that another writer escaped.

    \/  \u003d              escapes of JSON, as PHP, Gson and Go write it
    \x22                    escapes of Python's `repr`
    &quot;  &#39;  &#x3d;   entities of HTML and XML
    "abc" + "def"           literals that are joined, on one line or on two

All lines of a buffer that have such a mark, and the line before each, make one view. The other lines are no part of it,
because the view would repeat them.

Invariants: a view is never larger than its buffer; a span of it maps to all bytes that it was decoded from; work is
linear in the buffer, however long its lines are.
"""

import re
from collections.abc import Iterator

from strandline.detect.frames import Locate, Span
from strandline.detect.matching.databases import FixedDatabase
from strandline.detect.matching.prefilter import STRING_MARK
from strandline.detect.views.pieces import Pieces

NAME = "escapes"
_NEAR = 1_024
_MARK = re.compile(
    rb"\\/|\\u00[2-7][0-9A-Fa-f]|\\x22|&quot;|&#(?:3[49]|47|61|x2[27Ff]|x3[Dd]);"
    rb"|(?<=[0-9A-Za-z_+/=-]{6})[\"'](?: ?[+.&] ?(?:\r?\n[ \t]{0,40})?|\r?\n[ \t]{1,40}(?:[+.&] ?)?)[\"']"
    rb"(?=[0-9A-Za-z_+/=-]{4})"
    rb"|(?<== )\(\r?\n[ \t]{1,40}(?=[\"'])"
)
_MARKS = FixedDatabase("escapes", [STRING_MARK])
_SECOND_LITERAL = re.compile(rb"[ \t]{1,40}(?:[+.&] ?)?[\"']")
_NAMED = {b"&quot;": b'"', b"\\/": b"/", b"\\x22": b'"'}


def escape_ends(data: bytes) -> Iterator[int]:
    """Return the ends of the marks that make a view of a buffer."""
    return (end for end, _ in _MARKS.found(data))


def escape_view(data: bytes) -> tuple[str, bytes, Locate] | None:
    """Return the view of a buffer's escaped lines, or None if it has none."""
    pieces = Pieces()
    for first, last in _regions(data):
        at = first
        for mark in _MARK.finditer(data, first, last):
            pieces.add(data[at : mark.start()], at)
            pieces.add(_decoded(mark[0]), mark.start(), mark.end())
            at = mark.end()
        pieces.add(data[at:last] + b"\n", at)
    return (NAME, b"".join(pieces.parts), pieces.locate) if pieces.parts else None


def _regions(data: bytes) -> Iterator[Span]:
    """Yield the spans of lines with a mark, each with the line before it, cut where lines are long; none touch."""
    begin = end = -1
    for mark in escape_ends(data):
        if mark <= end:
            continue
        first = _line_before(data, mark - 1)
        if _SECOND_LITERAL.match(data, data.rfind(b"\n", first, mark) + 1):
            first = _line_before(data, first)
        after = data.find(b"\n", mark, mark + _NEAR)
        last = min(mark + _NEAR, len(data)) if after < 0 else after
        if first > end:
            if end >= 0:
                yield begin, end
            begin = first
        end = last
    if end >= 0:
        yield begin, end


def _line_before(data: bytes, position: int) -> int:
    """Return the start of the line before that of a position, or the bound if it is far."""
    least = max(0, position - _NEAR)
    own = data.rfind(b"\n", least, position)
    before = data.rfind(b"\n", least, max(own, least))
    return least if own < 0 or before < 0 else before + 1


def _decoded(mark: bytes) -> bytes:
    if mark in _NAMED:
        return _NAMED[mark]
    if mark[:1] in b"\"'(":
        return b""
    if mark.startswith(b"\\u"):
        return bytes([int(mark[-2:], 16)])
    return bytes([int(mark[3:-1], 16) if mark[2:3] == b"x" else int(mark[2:-1])])
