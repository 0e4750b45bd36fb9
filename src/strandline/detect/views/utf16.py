"""UTF-16 decoded to UTF-8 and mapped back: whole texts, and texts within other bytes.

Invariants: a decoded character maps to its two or four bytes; lone surrogates survive the round trip; a byte is part of
one view at most.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cache

from strandline.detect.frames import Locate, Span
from strandline.detect.matching.databases import FixedDatabase

_MARKS = ((b"\xff\xfe", "utf-16le"), (b"\xfe\xff", "utf-16be"))
_SAMPLE_BYTES = _BLOCK_BYTES = 4_096
_TEXT_SHARE = 0.4
_RUN_CHARACTERS = 16
_RUNS = (rb"(?:[\t\n\r\x20-\x7e]\x00){16}", rb"(?:\x00[\t\n\r\x20-\x7e]){16}")
_RUN_MARKS = FixedDatabase("utf-16", _RUNS)
_NAMES = ("utf-16le", "utf-16be")
_READABLE = frozenset(b"\t\n\r") | frozenset(range(0x20, 0x7F))
_KINDS = bytes(ord("0") if byte == 0 else ord("A") if byte in _READABLE else ord(" ") for byte in range(256))
_ALTERNATING = b"A0" * (_RUN_CHARACTERS - 1)


def utf16_views(data: bytes) -> Iterator[tuple[str, bytes, Locate]]:
    """Yield the UTF-16 texts of a buffer as UTF-8: all of it, or its runs, of one byte order as one text."""
    whole = _whole(data)
    if whole is not None:
        name, start = whole
        text = data[start : start + (len(data) - start) // 2 * 2]
        yield name, _to_utf8(text, name), _whole_locate(text, name, start)
        return
    for number, spans in enumerate(_runs(data)):
        if spans:
            text = b"\n".join(data[start + number : end : 2] for start, end in spans)
            yield _NAMES[number], text, _runs_locate(spans)


def _runs(data: bytes) -> tuple[list[Span], list[Span]]:
    """Return the runs of either byte order; of two that overlap the first counts."""
    if _ALTERNATING not in data.translate(_KINDS):
        return [], []
    open_: list[list[int]] = []
    last: dict[tuple[int, int], list[int]] = {}
    for end, number in _RUN_MARKS.found(data):
        run = last.get((number, end % 2))
        if run is not None and run[1] == end - 2:
            run[1] = end
        else:
            last[number, end % 2] = run = [end - 2 * _RUN_CHARACTERS, end, number]
            open_.append(run)
    runs: tuple[list[Span], list[Span]] = ([], [])
    after = 0
    for start, end, number in sorted(open_):
        if start >= after:
            runs[number].append((start, end))
            after = end
    return runs


def _whole(data: bytes) -> tuple[str, int] | None:
    """Return the byte order of a text and its start, if the buffer is UTF-16."""
    for mark, name in _MARKS:
        if data.startswith(mark) and not data.startswith(b"\xff\xfe\0\0"):
            return name, len(mark)
    sample = data[:_SAMPLE_BYTES]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) / 2
    if odd >= half * _TEXT_SHARE and even < half * _TEXT_SHARE / 8:
        return "utf-16le", 0
    if even >= half * _TEXT_SHARE and odd < half * _TEXT_SHARE / 8:
        return "utf-16be", 0
    return None


def _to_utf8(text: bytes, name: str) -> bytes:
    return text.decode(name, "surrogatepass").encode("utf-8", "surrogatepass")


def _whole_locate(text: bytes, name: str, first: int) -> Locate:
    @cache
    def blocks() -> tuple[bytes, list[int], list[int]]:
        """Return the text as UTF-8, and the starts of its blocks in either form."""
        pieces, narrow, wide = [], [0], [0]
        while wide[-1] < len(text):
            stop = min(wide[-1] + _BLOCK_BYTES, len(text))
            # A surrogate pair is not split.
            stop -= 2 * (stop < len(text) and _is_high(text[stop - 2 : stop], name))
            pieces.append(_to_utf8(text[wide[-1] : stop], name))
            narrow.append(narrow[-1] + len(pieces[-1]))
            wide.append(stop)
        return b"".join(pieces), narrow, wide

    def edge(at: int, *, is_end: bool) -> int:
        """Return the start of the character at a byte, or the end of the one before it."""
        decoded, narrow, wide = blocks()
        while at < len(decoded) and decoded[at] & 0xC0 == 0x80:  # noqa: PLR2004
            at += 1 if is_end else -1
        block = bisect_right(narrow, at) - 1
        characters = decoded[narrow[block] : at].decode("utf-8", "surrogatepass")
        return first + wide[block] + len(characters.encode(name, "surrogatepass"))

    return lambda start, end: (edge(start, is_end=False), edge(end, is_end=True))


def _is_high(unit: bytes, name: str) -> bool:
    """Return whether a unit is the high half of a surrogate pair."""
    return unit[1 if name == "utf-16le" else 0] & 0xFC == 0xD8  # noqa: PLR2004


def _runs_locate(spans: Sequence[tuple[int, int]]) -> Locate:
    starts = [0]
    for start, end in spans:
        starts.append(starts[-1] + (end - start) // 2 + 1)

    def offset(at: int) -> int:
        run = bisect_right(starts, at) - 1
        return spans[run][0] + 2 * (at - starts[run])

    return lambda start, end: (offset(start), offset(end - 1) + 2)
