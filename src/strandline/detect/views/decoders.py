"""Decoders of parts of a buffer, with the mapping of each decoded byte to its source.

    base64     a run of 32 digits or more, of either alphabet, wrapped in lines or not
    hex        a run of 32 digits or more
    percent    a word of 16 bytes or more with %XX in it
    escapes    all lines with escapes of JSON or HTML in them (`escapes`)
    tables     the cells of columns that hold secrets, each behind its column's name (`tables`)
    utf-16     a text with a byte order mark, or alternating with NUL; in other bytes every run of 16 characters or more

A part that decodes to nothing readable (a hash, an identifier) is no view and is not counted.

Invariants: a span of a view maps to exactly the bytes it was decoded from; parts beyond a limit are counted; work is
linear in the buffer.
"""

import binascii
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

import numpy as np

from strandline.detect.archives.members import kind_of
from strandline.detect.frames import Locate, Span
from strandline.detect.limits import KIB, Limits
from strandline.detect.matching.databases import FixedDatabase
from strandline.detect.matching.prefilter import PERCENT, RUN, STRING, TABLES
from strandline.detect.views.escapes import NAME as ESCAPES
from strandline.detect.views.escapes import escape_view
from strandline.detect.views.tables import NAME as CELLS
from strandline.detect.views.tables import table_view
from strandline.detect.views.utf16 import utf16_views

RUN_MIN, PERCENT_MIN = 32, 16
CHUNK_BYTES, _OVERLAP_BYTES = 64 * KIB, 64
_SHIFTED_MAX = 4_096
_DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_STANDARD, _URL_SAFE = re.compile(rb"[A-Za-z0-9+/]{32,}"), re.compile(rb"[A-Za-z0-9_\-]{32,}")
_FOREIGN, _URL_SIGN = re.compile(rb"[+/]"), re.compile(rb"[_\-]")
_NEXT_LINE = re.compile(rb"\r?\n[ \t]{0,64}([A-Za-z0-9+/]{1,256})(?==?=?[ \t]{0,8}(?:[\r\n\"'`,;)<\\]|\Z))")
_PADDING = re.compile(rb"={0,2}")
_TELLING = re.compile(rb"[\t\n\r\x20-\x7e]{16}|(?:[\t\n\r\x20-\x7e]\x00){8}|(?:\x00[\t\n\r\x20-\x7e]){8}")
_TEXT = re.compile(rb"[\t\n\r\x20-\x7e]{20}")
ESCAPE = re.compile(rb"%[0-9A-Fa-f]{2}")
_ESCAPED = re.compile(rb"%[0-9A-Fa-f]{2}|.", re.DOTALL)
_WORD = re.compile(rb"[!#-&(-;=?-_a-~]*")
_IS_WORD = bytes(0x41 if _WORD.fullmatch(bytes([byte])) else 0x20 for byte in range(256))
_TO_LINES = bytes(byte if _WORD.fullmatch(bytes([byte])) else 0x0A for byte in range(256))
_WORD_BEFORE_MAX = 4_096


class _Alphabet(NamedTuple):
    """The digits of an encoding: the expression of a run, the byte set, and the hints that a readable run contains."""

    run: re.Pattern[bytes]
    is_digit: bytes
    hints: tuple[bytes, ...]


def _alphabet(digits: bytes, *hints: bytes) -> _Alphabet:
    run = re.compile(b"[%s]*" % re.escape(digits))
    return _Alphabet(run, bytes(0x41 if byte in digits else 0x20 for byte in range(256)), hints)


# Three bytes of ASCII leave three bits of their four digits clear, and a text of sixteen bytes holds four such groups.
_GROUP = b"".join(b"[%s]" % bytes(digit for at, digit in enumerate(_DIGITS) if not at & bit) for bit in (32, 8, 2))
_READABLE = b"(?:[2-7][0-9A-Fa-f]|0[9ADad])"
_ALPHABETS = (
    _alphabet(
        _DIGITS + b"_-",
        rb"(?:%s[A-Za-z0-9+/_\-]){4}" % _GROUP,
        rb"(?:H4sI|UEs[DF]|[/_]Td6|KLUv|Qlpo|N3q8|UmFy)[A-Za-z0-9+/_\-]{12}",
    ),
    _alphabet(
        b"0123456789abcdefABCDEF",
        b"%s{16}" % _READABLE,
        b"(?:%s00){8}" % _READABLE,
        b"(?:00%s){8}" % _READABLE,
        b"(?i)(?:1f8b08|504b0[35]0[46]|fd377a58|28b52ffd|425a68|377abcaf|52617221)[0-9a-f]{12}",
    ),
)
_HINTS = FixedDatabase("hints", [hint for alphabet in _ALPHABETS for hint in alphabet.hints])
_HEX = _ALPHABETS[1].run
_IS_DIGIT = _ALPHABETS[0].is_digit
_WORD_BYTES = 8
_DIGITS_ONLY = np.frombuffer(b"A" * _WORD_BYTES, np.uint64)[0]
"""A word of digits alone, as `_IS_DIGIT` translates it."""


class View(NamedTuple):
    """A decoded part: its name, its bytes, and the function that maps its spans to the buffer's."""

    name: str
    data: bytes
    locate: Locate

    def __repr__(self) -> str:
        return f"View({self.name!r}, {len(self.data)} bytes)"


@dataclass
class DecodeBudget:
    """Bytes that may still be decoded of a file; nested views share it."""

    limits: Limits
    bytes_left: int
    skipped: int = 0


def views(data: bytes, marks: Mapping[int, int], budget: DecodeBudget, *, is_too_deep: bool = False) -> Iterator[View]:
    """Yield the views of a buffer, or count them if it is nested too deep; `marks` come from the prefilter."""
    spans: Counter[str] = Counter()
    for view in _candidates(data, marks, budget):
        # Texts in UTF-16, unescaped lines and cells are the file itself: the bounds of an entry hold for them.
        is_whole = view.name.startswith("utf-16") or view.name in (ESCAPES, CELLS)
        bytes_max = budget.limits.entry_bytes_max if is_whole else budget.bytes_left
        if is_too_deep or len(view.data) > bytes_max or spans[view.name] >= budget.limits.view_spans_max:
            budget.skipped += 1
            continue
        spans[view.name] += 1
        budget.bytes_left -= 0 if is_whole else len(view.data)
        yield view


def _candidates(data: bytes, marks: Mapping[int, int], budget: DecodeBudget) -> Iterator[View]:
    if RUN in marks:
        yield from _run_views(data, marks[RUN] - RUN_MIN, budget)
    if PERCENT in marks:
        yield from _percent_views(data, marks[PERCENT] - 3, budget)
    if STRING in marks and (unescaped := escape_view(data)) is not None:
        yield View(*unescaped)
    if not TABLES.isdisjoint(marks) and (cells := table_view(data, marks)) is not None:
        yield View(*cells)
    if b"\0" in data:
        yield from (View(*view) for view in utf16_views(data))


def is_telling(data: bytes) -> bool:
    """Return whether decoded bytes can hold a secret: some of them are text, or they are an archive."""
    return _TELLING.search(data) is not None or kind_of(data) is not None


def is_varied(text: bytes) -> bool:
    """Return whether a run has both cases, like encoded text; most long runs are names or rulers, which have one."""
    return not (text.islower() or text.isupper()) and text.lower() != text


def _run_views(data: bytes, begin: int, budget: DecodeBudget) -> Iterator[View]:
    """Yield the views of the runs that contain a hint; each run is decoded once."""
    after = [0] * len(_ALPHABETS)
    for end, number in _hints(data, begin, after):
        if end <= after[number]:
            continue
        start, after[number] = _run_around(data, end - 1, _ALPHABETS[number], after[number])
        if after[number] - start >= RUN_MIN:
            view, after[number] = (_base64_view, _hex_view)[number](data, start, after[number])
            if view is not None:
                yield _cut(view, budget)


def _hints(data: bytes, begin: int, after: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the ends of hints with the number of their alphabet, in order; further hints of a run are skipped."""
    for at in range(begin, len(data), CHUNK_BYTES):
        if after[0] < at + CHUNK_BYTES:
            first = max(begin, at - _OVERLAP_BYTES)
            for end, number in hints(data[first : at + CHUNK_BYTES]):
                yield first + end, number


def hints(data: bytes) -> list[tuple[int, int]]:
    """Return the ends of hints with the number of their alphabet: all in runs that may have a view, and few others.

    Runs are a small part of most texts, so they are picked out first, eight bytes at a time. A run of `RUN_MIN` digits
    has three whole words; the words on either side of them hold what else the run has. What is picked stands side by
    side, and a hint is longer than the digits that two runs can lay together so.
    """
    padded = data + bytes(2 * _WORD_BYTES - len(data) % _WORD_BYTES)
    is_whole = np.frombuffer(padded.translate(_IS_DIGIT), np.uint64) == _DIGITS_ONLY
    in_row = is_whole[:-2] & is_whole[1:-1] & is_whole[2:]
    if not in_row.any():
        return []
    picks = np.zeros(len(is_whole) + 2, np.bool_)
    for shift in range(5):
        picks[shift : shift + len(in_row)] |= in_row
    picks = picks[1:-1]
    found = _HINTS.found(np.frombuffer(padded, np.uint64)[picks].tobytes())
    if not found:
        return []
    words = np.flatnonzero(picks)
    last = np.array([end - 1 for end, _ in found])
    ends: list[int] = (words[last // _WORD_BYTES] * _WORD_BYTES + last % _WORD_BYTES + 1).tolist()
    return [(end, int(number >= len(_ALPHABETS[0].hints))) for end, (_, number) in zip(ends, found, strict=True)]


def _run_around(data: bytes, position: int, alphabet: _Alphabet, least: int) -> Span:
    """Return the run of digits around a position, not beginning before `least`."""
    found = alphabet.run.match(data, position)
    end = found.end() if found else position
    size = 256
    while position > least:
        first = max(least, position - size)
        gap = data[first:position].translate(alphabet.is_digit).rfind(b" ")
        if gap >= 0:
            return first + gap + 1, end
        position, size = first, size * 4
    return position, end


def _cut(view: View, budget: DecodeBudget) -> View:
    """Return the view cut to the size limit; count a view that is cut."""
    if len(view.data) <= budget.limits.view_bytes_max:
        return view
    budget.skipped += 1
    return View(view.name, view.data[: budget.limits.view_bytes_max], view.locate)


def _hex_view(data: bytes, start: int, end: int) -> tuple[View | None, int]:
    for first in (start, start + 1):
        decoded = binascii.unhexlify(data[first : first + (end - first) // 2 * 2])
        if is_telling(decoded):
            return View("hex", decoded, _every(2, first)), end
    return None, end


def _every(size: int, first: int) -> Locate:
    return lambda start, end: (first + start * size, first + end * size)


def _base64_view(data: bytes, start: int, end: int) -> tuple[View | None, int]:
    """Return the view of a run, and the run's end; a run of both alphabets is tried as each."""
    if not is_varied(data[start:end]) or _HEX.fullmatch(data, start, end):
        return None, end
    is_standard = _FOREIGN.search(data, start, end) is not None or _URL_SIGN.search(data, start, end) is None
    for alphabet in (_STANDARD, _URL_SAFE) if is_standard else (_URL_SAFE,):
        for found in alphabet.finditer(data, start, end):
            parts = _lines(data, *found.span()) if found.end() == end and alphabet is _STANDARD else [found.span()]
            view = _decoded(data, parts)
            if view is not None:
                return view, parts[-1][1]
    return None, end


def _lines(data: bytes, start: int, end: int) -> list[Span]:
    """Return a run and its continuation lines: each as long as the first, the last one shorter."""
    parts, size = [(start, end)], end - start
    while size % 4 == 0 and parts[-1][1] - parts[-1][0] == size:
        following = _NEXT_LINE.match(data, parts[-1][1])
        if following is None or following.end(1) - following.start(1) > size:
            break
        parts.append(following.span(1))
    return parts


def _decoded(data: bytes, parts: Sequence[Span]) -> View | None:
    """Return the decoded run; if words before it look like digits, search for its beginning."""
    text = b"".join(data[start:end] for start, end in parts)
    padding = len(_PADDING.match(data, parts[-1][1])[0])  # type: ignore[index]
    first = (len(text) + padding) % 4 if padding else 0
    is_joined = len(text) <= _SHIFTED_MAX and not text.isalnum()
    text = text.translate(_TO_STANDARD)
    for shift in (first, *(shift for shift in range(4) if shift != first)) if is_joined else (first,):
        end = len(text) - ((len(text) - shift) % 4 == 1)
        decoded = binascii.a2b_base64(text[shift:end] + b"==")
        if is_telling(decoded) if shift == first else _TEXT.search(decoded):
            return View("base64", decoded, _base64_locate(parts, shift))
    return None


def _base64_locate(parts: Sequence[Span], shift: int) -> Locate:
    starts = [0]
    for start, end in parts:
        starts.append(starts[-1] + end - start)

    def offset(digit: int) -> int:
        part = min(bisect_right(starts, digit), len(parts)) - 1
        return parts[part][0] + digit - starts[part]

    return lambda start, end: (offset(start * 8 // 6 + shift), offset((end * 8 - 1) // 6 + shift) + 1)


def _percent_views(data: bytes, begin: int, budget: DecodeBudget) -> Iterator[View]:
    after = 0
    while (escape := ESCAPE.search(data, max(after, begin))) is not None:
        least = max(after, escape.start() - _WORD_BEFORE_MAX)
        start = least + data[least : escape.start()].translate(_IS_WORD).rfind(b" ") + 1
        after = _WORD.match(data, escape.start()).end()  # type: ignore[union-attr]
        text = data[start : min(after, start + 3 * budget.limits.view_bytes_max)]
        if len(text) >= PERCENT_MIN:
            decoded = unquote_to_bytes(text)
            budget.skipped += start + len(text) < after and len(decoded) <= budget.limits.view_bytes_max
            yield _cut(View("percent", decoded, _percent_locate(text, start)), budget)


def unescaped_words(data: bytes) -> bytes:
    """Return all words that may have a percent view, unescaped, each on lines of its own."""
    return unquote_to_bytes(data.translate(_TO_LINES))


def _percent_locate(text: bytes, start: int) -> Locate:
    @cache
    def edges() -> list[int]:
        return [*(found.start() + start for found in _ESCAPED.finditer(text)), start + len(text)]

    return lambda first, last: (edges()[first], edges()[last])
