r"""A view of tables: each cell of a column whose name is that of a secret, on a line of its own behind that name.

    INSERT INTO users (id, password) VALUES (1, 'x'), …       password: "x"
    INSERT INTO users VALUES (1, 'x')                         … with the names of the CREATE TABLE in the same text
    COPY users (id, password) FROM stdin;                     … with rows of tabs down to `\.`
    id,password                                               CSV with `,` `;` a tab or `|`, names in the first lines
    | id | password |  over  |----|----|                      tables of Markdown, and those that mysql and psql print

Rules read a cell as they read an assignment, so that a table needs no rules of its own.

Invariants: a span of a cell maps to exactly the cell's bytes; a view is no larger than a few times its buffer; work is
linear in the buffer.
"""

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice

from strandline.detect.frames import Locate, Span
from strandline.detect.matching.databases import FixedDatabase
from strandline.detect.matching.prefilter import COPY_MARK, CSV, GRID, GRID_MARK, INSERT_MARK, SQL, TABLE_MARKS
from strandline.detect.views.pieces import Pieces

NAME = "tables"
_SECRET = re.compile(
    rb"(?:[\w .-]{0,40}?)(?:pass(?:word|wd|phrase|code|wort)?|pwd|secret|token|credentials?"
    rb"|(?:api|access|auth|app|client|private|secret|account|license|encryption|signing|master|admin|service|storage)"
    rb"[ _-]?key)(?:[ _-]?(?:value|key|plain(?:text)?|[0-9]))?",
    re.IGNORECASE,
)
_NONE = re.compile(
    rb"(?i)hash|digest|encrypted|public|bypass|compass|expir|\bno[ _]pass"
    rb"|(?:render|shader|shadow|depth|test)[ _.-]?pass\b"
)
_CHOSEN = re.compile(rb"(?i)pass(?!.*(?:key|token|secret))|pwd")
_DIGEST = re.compile(
    rb"(?:0x|\\x|\*)?(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{56}|[0-9a-fA-F]{64}|[0-9a-fA-F]{96}|[0-9a-fA-F]{128})"
    rb"|[0-9a-zA-Z+/]{27}=|[0-9a-zA-Z+/]{86}=="
)
"""What stands for a password that people choose: MD5 and the SHA family in hexadecimal digits, MySQL's hash, and base64
of SHA-1 and SHA-512; 16 and 32 bytes in base64 are what generators of passwords make, too."""
_TITLE = re.compile(rb"[ \t]{0,40}[\"'`*]{0,2}[A-Za-z_][\w.-]{0,40}(?: [\w.-]{1,30}){0,2}[\"'`*]{0,2}[ \t]{0,40}")
_BLANKS, _QUOTED, _EDGES = b" \t\r", b" \t\r\"'", b" \t\r\"'`*"
_NAME_MAX, _CELL_MIN, _CELL_MAX = 24, 5, 512
_HEAD_LINES, _HEAD_BYTES = 3, 8_192
_ROW_MAX, _LOOKED_AT = 65_536, 64
_CALL = re.compile(rb"\([^(),]*+,[^()]*+\)")
_SEPARATORS = (b",", b";", b"\t", b"|")
_RULER = re.compile(
    rb"\n([ \t]{0,8}[|+]?(?:[ \t]{0,4}:?-{2,200}:?[ \t]{0,4}[|+]){1,100}[ \t]{0,4}:?-{0,200}:?)[ \t]{0,8}\r?\n"
)
_INSERT = re.compile(
    rb"insert\s{1,8}(?:ignore\s{1,8})?into\s{1,8}([\w.`\"\[\]]{1,130})\s{0,8}(?:\(([^()]{1,4000})\)\s{0,8})?"
    rb"values\s{0,8}(?=\()",
    re.IGNORECASE,
)
_CREATE_MARK = rb"(?i)create\s{1,8}table\s"
_MARK_DATABASES = {
    mark: FixedDatabase(f"tables {number}", [mark])
    for number, mark in enumerate((*TABLE_MARKS.values(), INSERT_MARK, COPY_MARK, _CREATE_MARK))
}
_CREATE = re.compile(rb"\s{0,7}(?:if\s{1,8}not\s{1,8}exists\s{1,8})?([\w.`\"\[\]]{1,130})\s{0,8}\(", re.IGNORECASE)
_COLUMN = re.compile(rb"\s{0,40}[`\"\[]?(\w{1,64})[`\"\]]?\s[^,()]{0,400}(?:\([^()]{0,400}\)[^,()]{0,400}){0,4}(,|\))")
_NO_COLUMN = frozenset({b"primary", b"key", b"unique", b"constraint", b"index", b"foreign", b"check", b"fulltext"})
_COPY = re.compile(
    rb"copy\s{1,8}[\w.\"]{1,130}\s{0,8}\(([^()]{1,4000})\)\s{1,8}from\s{1,8}stdin[^\n]{0,200}\n", re.IGNORECASE
)
_VALUE = re.compile(
    rb"\s{0,200}+(?:(?:[NnEe]|_\w{1,16}\s)?'([^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+)'"
    rb"|\"([^\"\\]*+(?:(?:\\.|\"\")[^\"\\]*+)*+)\""
    rb"|[^,()'\"]{0,400}+(?:\([^()]{0,400}+\)[^,()'\"]{0,40}+)?+)\s{0,200}+([,)])",
    re.DOTALL,
)
_INSERT_MAX, _COPY_MAX, _VALUE_MAX, _COLUMNS_MAX, _BROKEN_MAX = 40, 4_400, 16_384, 1_000, 64


def table_view(data: bytes, marks: Mapping[int, int]) -> tuple[str, bytes, Locate] | None:
    """Return the view of a buffer's tables, or None if no column of one has the name of a secret."""
    pieces = _Cells(data)
    if marks.get(CSV, _HEAD_BYTES) < _HEAD_BYTES:
        _add_csv(data, pieces)
    if GRID in marks:
        _add_grids(data, pieces)
    if SQL in marks:
        _add_inserts(data, pieces)
        _add_copies(data, pieces)
    return (NAME, b"".join(pieces.parts), pieces.locate) if pieces.parts else None


def table_mark_ends(text: bytes, marks: Container[int]) -> Iterator[tuple[int, Iterator[int]]]:
    """Yield the marks of tables that a text has, each with the ends of all its places."""
    return ((mark, _ends(text, pattern)) for mark, pattern in TABLE_MARKS.items() if mark in marks)


class _Cells(Pieces):
    """The cells of a view, each behind the name of its column."""

    def __init__(self, data: bytes) -> None:
        super().__init__()
        self._data = data

    def add_cell(self, name: bytes, start: int, end: int, edges: bytes) -> None:
        """Append a cell without what stands around its value, if it can hold a secret."""
        cell = self._data[start:end]
        value = cell.strip(edges)
        if not _CELL_MIN <= len(value) <= _CELL_MAX or b"\n" in value:
            return
        if _CHOSEN.search(name) and _DIGEST.fullmatch(value):
            return
        start += len(cell) - len(cell.lstrip(edges))
        quote = b"'" if b'"' in value else b'"'
        self.add(name + b": " + quote, start, start)
        self.add(value, start)
        self.add(quote + b"\n", start + len(value), start + len(value))


def _columns(titles: Sequence[bytes]) -> dict[int, bytes]:
    """Return the columns that hold secrets, each with its name as a word."""
    names = (title.strip(_EDGES + b"[]") for title in titles)
    return {
        at: re.sub(rb"\W", b"_", name)[-_NAME_MAX:]
        for at, name in enumerate(names)
        if _SECRET.fullmatch(name) and not _NONE.search(name)
    }


def _lines(data: bytes, start: int) -> Iterator[Span]:
    """Yield the spans of the lines from a position on, without their breaks."""
    while start < len(data):
        end = _line_end(data, start)
        yield start, end
        start = end + 1


def _split(data: bytes, start: int, end: int, separator: bytes, most: int) -> list[Span]:
    """Return the spans of a line's first cells, at most so many; a separator within double quotes is none."""
    cells: list[Span] = []
    first = at = start
    while True:
        while data[at : at + 1] == b'"' and at < end:  # a quoted cell, or a quote that is doubled in it
            closing = data.find(b'"', at + 1, end)
            at = end if closing < 0 else closing + 1
        stop = data.find(separator, at, end)
        stop = end if stop < 0 else stop
        cells.append((first, stop))
        if stop == end or len(cells) == most:
            return cells
        first = at = stop + 1


def _add_csv(data: bytes, pieces: _Cells) -> None:
    """Add the cells of a text whose first lines name the columns of all others."""
    lines = _lines(data, 3 if data.startswith(b"\xef\xbb\xbf") else 0)
    for _, (start, end) in zip(range(_HEAD_LINES), lines, strict=False):
        if end - start > _HEAD_BYTES:
            continue
        separator = next((one for one in _SEPARATORS if _is_head(data[start:end].rstrip(b"\r"), one)), None)
        if separator is None:
            continue
        titles = data[start:end].split(separator)
        columns = _columns(titles)
        if _has_rows(data, end + 1, separator, titles):
            for cells in _rows(data, end + 1, separator, len(titles)):
                for at, name in columns.items() if len(cells) == len(titles) else ():
                    pieces.add_cell(name, *cells[at], _QUOTED)
        return


def _has_rows(data: bytes, start: int, separator: bytes, titles: Sequence[bytes]) -> bool:
    """Return whether half of the first rows have the cells that the titles ask for.

    If a blank follows each comma of the titles, they may be words of a sentence or of code: then all rows have it, too,
    and none is a call.
    """
    is_spaced = separator == b"," and all(title.startswith(b" ") for title in titles[1:])
    looked = fitting = 0
    for cells in islice(_rows(data, start, separator, len(titles)), _LOOKED_AT):
        looked += 1
        fitting += len(cells) == len(titles)
        if is_spaced and not (
            len(cells) == len(titles)
            and all(data.startswith(b" ", first) for first, _ in cells[1:])
            and not _CALL.search(data, cells[0][0], cells[-1][1])
        ):
            return False
    return fitting * 2 >= looked


def _rows(data: bytes, start: int, separator: bytes, most: int) -> Iterator[list[Span]]:
    """Yield the cells of each row, one more than `most` at most; a row with an open quote goes on in the next line."""
    while start < len(data):
        end = _line_end(data, start)
        cells: list[Span] = []
        if data.count(b'"', start, end) % 2:
            last = _closing(data, end + 1)
            cells = _split(data, start, last, separator, most + 1)
            if len(cells) == most:
                end = last
        if len(cells) != most:
            cells = _split(data, start, end, separator, most + 1)
        if end - start > data.startswith(b"\r", start):
            yield cells
        start = end + 1


def _closing(data: bytes, start: int) -> int:
    """Return the end of the next line with an odd number of quotes; each line is looked at for one line before it."""
    stop = min(len(data), start + _ROW_MAX)
    while start < stop:
        end = _line_end(data, start)
        if data.count(b'"', start, end) % 2:
            return end
        start = end + 1
    return start - 1


def _line_end(data: bytes, start: int) -> int:
    end = data.find(b"\n", start)
    return len(data) if end < 0 else end


def _is_head(line: bytes, separator: bytes) -> bool:
    titles = line.split(separator)
    is_whole = 1 < len(titles) <= _COLUMNS_MAX and all(map(_TITLE.fullmatch, titles))
    return is_whole and bool(_columns(titles))


def _ends(data: bytes, mark: bytes) -> Iterator[int]:
    return (end for end, _ in _MARK_DATABASES[mark].found(data))


def _add_grids(data: bytes, pieces: _Cells) -> None:
    """Add the cells of tables whose names stand over a line of dashes."""
    after = 0
    for mark in _ends(data, GRID_MARK):
        if mark <= after:
            continue
        begin = max(data.rfind(b"\n", after, mark), after)
        after = _line_end(data, mark)
        ruler = _RULER.match(data, begin)
        start = data.rfind(b"\n", max(0, begin - _HEAD_BYTES), begin) + 1
        columns = _columns(data[start:begin].split(b"|")) if ruler is not None and start + _HEAD_BYTES > begin else {}
        edges = _BLANKS if ruler is not None and b"+" in ruler[1] else _EDGES  # a database prints no signs of Markdown
        most = max(columns, default=0) + 2  # a line of one cell ends the table
        for first, last in _lines(data, after + 1) if columns else ():
            cells = _split(data, first, last, b"|", most)
            if len(cells) == 1:
                break
            after = last
            for at, name in columns.items():
                if at < len(cells):
                    pieces.add_cell(name, *cells[at], edges)


def _add_inserts(data: bytes, pieces: _Cells) -> None:
    """Add the values of INSERT statements."""
    after = broken = 0
    tables: dict[bytes, list[bytes]] | None = None
    for mark in _ends(data, INSERT_MARK):
        first = max(after, mark - _INSERT_MAX)
        statement = _INSERT.match(data, first + data[first:mark].lower().rfind(b"insert"))
        if mark <= after or statement is None or broken == _BROKEN_MAX:
            continue
        if statement[2] is not None:
            titles = statement[2].split(b",")
        else:
            tables = _tables(data) if tables is None else tables
            titles = tables.get(_plain(statement[1]), [])
        columns = _columns(titles)
        if columns:
            after, is_whole = _add_rows(data, statement.end(), columns, pieces)
            broken += not is_whole


def _add_rows(data: bytes, at: int, columns: Mapping[int, bytes], pieces: _Cells) -> tuple[int, bool]:
    """Add the values of the rows from a position on; return the end, and whether it is that of a row."""
    while data[at : at + 1] == b"(":
        at += 1
        for number in range(_COLUMNS_MAX):
            value = _VALUE.match(data, at, at + _VALUE_MAX)
            if value is None:
                return at, False
            at = value.end()
            group = 1 if value[1] is not None else 2
            if number in columns and value[group]:
                pieces.add_cell(columns[number], *value.span(group), _BLANKS)
            if value[3] == b")":
                break
        at += len(data[at : at + 64]) - len(data[at : at + 64].lstrip(b", \t\r\n"))
    return at, True


def _tables(data: bytes) -> dict[bytes, list[bytes]]:
    """Return the names of the columns of each table that the text makes."""
    tables: dict[bytes, list[bytes]] = {}
    for mark in _ends(data, _CREATE_MARK):
        table = _CREATE.match(data, mark)
        if table is None:
            continue
        names: list[bytes] = []
        column = _COLUMN.match(data, table.end())
        while column is not None and len(names) < _COLUMNS_MAX:
            if column[1].lower() not in _NO_COLUMN:
                names.append(column[1])
            column = _COLUMN.match(data, column.end()) if column[2] == b"," else None
        tables[_plain(table[1])] = names
    return tables


def _plain(name: bytes) -> bytes:
    return name.translate(None, b'`"[]').lower().split(b".")[-1]


def _add_copies(data: bytes, pieces: _Cells) -> None:
    r"""Add the cells of PostgreSQL's COPY, whose rows end at `\.`."""
    after = 0
    for mark in _ends(data, COPY_MARK):
        first = max(after, mark - _COPY_MAX)
        copy = _COPY.match(data, first + data[first:mark].lower().rfind(b"copy"))
        columns = _columns(copy[1].split(b",")) if copy is not None and mark > after else {}
        after = max(after, mark)
        most = max(columns, default=0) + 1
        for start, end in _lines(data, copy.end()) if copy is not None and columns else ():
            after = end
            if data.startswith(b"\\.", start):
                break
            cells = _split(data, start, end, b"\t", most)
            for at, name in columns.items():
                if at < len(cells):
                    pieces.add_cell(name, *cells[at], _BLANKS)
