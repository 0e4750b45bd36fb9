"""Streams of records out of the XML of Jira and Confluence, one at a time, whatever the size of the file.

    <entity-engine-xml> <Issue id="…" summary="…"><description>…</description></Issue> …       a record of Jira
    <hibernate-generic> <object class="Page"><id>…</id><property name="title">…</property> …   a record of Confluence

Invariants: a document type, an entity of its own or an external one is refused before it is expanded; memory is bounded
by a record, and a record by `RECORD_BYTES_MAX`; long values are cut and counted; characters that XML does not allow,
which both programs write as they are or as references (`&#8;`), are spaces.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any
from xml.parsers import expat

from strandline.errors import InvalidInput

VALUE_BYTES_MAX = 16 << 20
UNREAD_BYTES_MAX = 64 << 20
RECORD_BYTES_MAX = 256 << 20
"""The size of a record, with `_ELEMENT_BYTES` for each element of it; no program writes one so large."""
_ELEMENT_BYTES = 64
DEPTH_MAX = 64
_PIECE_BYTES = 1 << 18
_SPACE = 0x20
_SPACES = bytes(_SPACE if byte < _SPACE and byte not in b"\t\n\r" else byte for byte in range(256))
_SUSPECT = (b"&#", b"\xef\xbf", b"\xed")
_SPECIAL = re.compile(rb"&#(?:x([0-9A-Fa-f]{1,8})|([0-9]{1,10}));|\xef\xbf[\xbe\xbf]|\xed[\xa0-\xbf][\x80-\xbf]")
"""References, the two characters at the end of the first plane, and halves of surrogate pairs."""
_TORN = re.compile(rb"(?:&(?:#(?:x[0-9A-Fa-f]{0,8}|[0-9]{0,10}))?|\xef\xbf?|\xed[\xa0-\xbf]?)\Z")
"""What the next piece may complete to one of them."""
_TORN_BYTES = 16
_ALLOWED = ((0x9, 0xA, 0xD), range(0x20, 0xD800), range(0xE000, 0xFFFE), range(0x10000, 0x110000))
"""The characters of XML 1.0."""


class XmlRefused(InvalidInput):
    """XML that is broken, or that holds what no export has."""


@dataclass
class Record:
    """A record: its kind, and its fields in their order; `references` are ids of others by the name of the field."""

    kind: str
    fields: dict[str, str] = field(default_factory=dict)
    references: dict[str, list[str]] = field(default_factory=dict)
    cut: int = 0


def jira_records(stream: IO[bytes]) -> Iterator[Record]:
    """Yield the entities of Jira."""
    return _records(stream, _Jira())


def confluence_records(stream: IO[bytes]) -> Iterator[Record]:
    """Yield the objects of Confluence."""
    return _records(stream, _Confluence())


class _Handler:
    """What the parser tells; complete records wait in `done`."""

    def __init__(self) -> None:
        self.done: list[Record] = []
        self.record: Record | None = None
        self.depth = 0
        self.text: list[str] = []
        self.size = 0
        self.record_size = 0

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise XmlRefused("the XML is nested too deeply")
        self.text, self.size = [], 0
        self.record_size = 0 if self.record is None else self.record_size + _ELEMENT_BYTES + len(name)
        self.check_size()
        self.element(name, attributes)

    def end(self, name: str) -> None:
        self.ended(name)
        if self.depth == 2 and self.record is not None:  # noqa: PLR2004 - below the root
            self.done.append(self.record)
            self.record = None
        self.depth -= 1
        self.text, self.size = [], 0

    def data(self, text: str) -> None:
        if self.record is None:
            return
        left = max(0, VALUE_BYTES_MAX - self.size)
        self.text.append(text[:left])
        self.record.cut += 0 < left < len(text) or (not left and self.size == VALUE_BYTES_MAX)
        self.size += len(text)
        self.record_size += min(left, len(text))
        self.check_size()

    def check_size(self) -> None:
        if self.record_size > RECORD_BYTES_MAX:
            raise XmlRefused("a record of the XML is too large")

    def element(self, name: str, attributes: dict[str, str]) -> None:
        raise NotImplementedError

    def ended(self, name: str) -> None:
        raise NotImplementedError


class _Jira(_Handler):
    def __init__(self) -> None:
        super().__init__()
        self._texts: dict[str, list[str]] = {}

    def element(self, name: str, attributes: dict[str, str]) -> None:
        if self.depth == 2:  # noqa: PLR2004 - below the root
            self.record = Record(name, attributes)
            self._texts = {}

    def ended(self, name: str) -> None:
        if self.record is None:
            return
        if self.depth > 2:  # noqa: PLR2004 - a field with lines of its own
            self._texts.setdefault(name, []).extend(self.text)
        else:
            self.record.fields |= {
                one: "".join([self.record.fields.get(one, ""), *texts]) for one, texts in self._texts.items()
            }


class _Confluence(_Handler):
    def __init__(self) -> None:
        super().__init__()
        self._names: list[str] = []
        self._texts: dict[str, list[str]] = {}

    def element(self, name: str, attributes: dict[str, str]) -> None:
        if self.depth == 2:  # noqa: PLR2004 - below the root
            self.record = Record(attributes.get("class") or name)
            self._texts = {}
        self._names.append(attributes.get("name", "") if name in {"property", "collection"} else "")

    def ended(self, name: str) -> None:
        named = self._names.pop()
        text = "".join(self.text)
        if self.record is None:
            return
        around = next((one for one in reversed(self._names) if one), "")
        if name == "id" and around:
            self.record.references.setdefault(around, []).append(text.strip())
        elif name == "id" and self.depth == 3:  # noqa: PLR2004 - of the record itself
            self.record.fields["id"] = text.strip()
        elif named and text.strip():
            self.record.fields[named] = text
        elif text.strip():  # an element of a collection
            self._texts.setdefault(around or name, []).append(text)
        if self.depth == 2:  # noqa: PLR2004 - below the root
            self.record.fields |= {one: "\n".join(texts) for one, texts in self._texts.items()}


def _records(stream: IO[bytes], handler: _Handler) -> Iterator[Record]:
    parser = _parser(handler)
    fed = 0
    try:
        for piece in _allowed(stream):
            fed += len(piece)
            parser.Parse(piece, False)  # noqa: FBT003 - expat takes no name
            if fed - parser.CurrentByteIndex > UNREAD_BYTES_MAX:
                raise XmlRefused("a value of the XML is too large")
            yield from handler.done
            handler.done.clear()
        parser.Parse(b"", True)  # noqa: FBT003 - as above
    except expat.ExpatError as error:
        raise XmlRefused(f"the XML is broken at line {error.lineno}, column {error.offset + 1}") from error
    yield from handler.done


def _allowed(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the document in pieces, with a space for each character that XML does not allow."""
    torn = b""
    while piece := stream.read(_PIECE_BYTES):
        data = torn + piece.translate(_SPACES)
        found = _TORN.search(data, max(0, len(data) - _TORN_BYTES))
        end = len(data) if found is None else found.start()
        data, torn = data[:end], data[end:]
        yield _SPECIAL.sub(_one_allowed, data) if any(one in data for one in _SUSPECT) else data
    yield torn


def _one_allowed(found: re.Match[bytes]) -> bytes:
    """Return a reference as it is if XML allows its character, else a space."""
    code = int(found[1], 16) if found[1] else int(found[2]) if found[2] else 0
    return found[0] if any(code in some for some in _ALLOWED) else b" "


def _parser(handler: _Handler) -> expat.XMLParserType:
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = handler.begin
    parser.EndElementHandler = handler.end
    parser.CharacterDataHandler = handler.data

    def refuse(*_: Any) -> int:  # noqa: ANN401 - expat's arguments differ by handler
        raise XmlRefused("the XML has a document type or entities of its own", hint="no export has them: check it")

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.ExternalEntityRefHandler = refuse
    return parser
