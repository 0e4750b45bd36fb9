r"""Exports of Slack, Jira and Confluence as a source, in a folder or a zip.

    locator    d \0 channel's id \0 day        a day of a Slack channel
               i \0 key                        an issue of Jira: fields, comments, worklogs, changes
               p \0 space's key \0 page's id   a page of Confluence: all its versions and comments
               o \0 kind                       other entities of the XML, such as mail servers
               m \0 path                       any other file of the export, attachments included
    version    BLAKE3 of the texts, or of the file

Invariants: an item is named by ids that stay the same in the next export, so that findings and decisions stay; an
export is recognised by its files, whatever its name; nothing is unpacked to disk. XML and zips are untrusted: see
`export_xml` and `export_files`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from html import unescape
from typing import Self

import pyarrow as pa
from blake3 import blake3

from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.path_globs import PathGlobs
from strandline.scan.sources.errors import UNKNOWN_VERSION, InputUnusable, ItemProblem, Problem
from strandline.scan.sources.export_files import BROKEN, ExportFiles
from strandline.scan.sources.export_index import ExportIndex
from strandline.scan.sources.export_kinds import CONFLUENCE, ENTITIES, HTML_PAGE, JIRA, SCHEMES, SLACK, Kind, recognised
from strandline.scan.sources.export_xml import XmlRefused, confluence_records, jira_records
from strandline.scan.sources.slack_messages import (
    CHANNELS,
    DAY,
    USERS,
    WORKSPACE_BYTES_MAX,
    Workspace,
    message_parts,
    workspace_of,
)
from strandline.scan.sources.source import SIZE_MAX, Content, ItemReader, Part, Row, Tell, batches

EXCLUDED, EMPTY = "excluded", "empty"
_TITLE = re.compile(rb"<title>(.*?)</title>", re.DOTALL | re.IGNORECASE)
_HEAD_BYTES = 1 << 16


@dataclass(frozen=True)
class ExportSource:
    """An export; make it with `ExportSource.at`."""

    path: str
    kind: Kind
    name: str
    instance: ConnectorInstanceId
    excludes: PathGlobs
    size_max: int

    @classmethod
    def at(cls, address: str, *, name: str = "", excludes: PathGlobs | None = None, size_max: int = SIZE_MAX) -> Self:
        """Return the export at `export:PATH`, or at `slack:`, `jira:` or `confluence:PATH`."""
        scheme = next((one for one in SCHEMES if address.startswith(one)), None)
        if scheme is None:
            raise InvalidInput(f"{shown(address)} names no export", hint="write export:PATH")
        with ExportFiles(address.removeprefix(scheme)) as files:
            kind = recognised(files, SCHEMES[scheme])
            site = name or kind.site
            if not site:
                hint = "name the site that it is of, the same for each export of it: --source-name jira.example.org"
                raise InputUnusable(shown(files.path), "the export does not say which site it is of", hint=hint)
            kind = kind if kind.site else kind._replace(site=site)  # ids of pages are the same with either
            instance = connector_instance_id(f"{kind.word}\0{site}".encode(errors="surrogateescape"))
            return cls(files.path, kind, name or files.path, instance, excludes or PathGlobs(), size_max)

    cut = "one part: records of the XML are known by the stream before them"

    @property
    def tag(self) -> str:
        """Return the kind of source."""
        return self.kind.tag

    @property
    def is_part(self) -> bool:
        """Whether others may exist: an export of Slack has the channels and the days that were asked for."""
        return self.kind.word == SLACK

    def plain(self) -> Plain:
        """Return the settings that decide the listing."""
        return {
            "kind": self.kind.word,
            "instance": self.instance.hex(),
            "path": shown(self.path),
            "excludes": [glob.text for glob in self.excludes.globs],
            "size_max": self.size_max,
        }

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield issues or pages, then the files of known channels and all others, in the order of their names."""
        counts: Counter[str] = Counter()
        return batches(self._rows(counts), tell, counts)

    @contextmanager
    def open(self) -> Iterator[ItemReader]:
        """Return a reader; that of an XML export reads the whole file first."""
        with ExitStack() as stack:
            files = stack.enter_context(ExportFiles(self.path))
            yield ExportReader(self, files, stack)

    def display(self, locator: bytes, extra: bytes | None) -> str:
        """Return the channel and the day, the issue, the page, or the path of the file."""
        if extra is not None:
            return str(json.loads(extra)["path"])
        return locator.partition(b"\0")[2].replace(b"\0", b"/").decode(errors="surrogateescape")

    def indexed(self, files: ExportFiles, stack: ExitStack) -> ExportIndex:
        """Read the XML of the export into an index that lives as long as the stack."""
        index = stack.enter_context(ExportIndex())
        is_jira = self.kind.word == JIRA
        try:
            with files.open(self.kind.root + ENTITIES) as stream:
                for record in (jira_records if is_jira else confluence_records)(stream):
                    (index.add_jira if is_jira else index.add_confluence)(record)
        except (XmlRefused, ItemProblem, OSError, *BROKEN) as error:
            raise InputUnusable(
                f"{shown(self.path)}, {ENTITIES}", str(error), hint="export it again, or scan it as files"
            ) from error
        index.finish()
        return index

    def _rows(self, counts: Counter[str]) -> Iterator[Row]:
        with ExitStack() as stack:
            files = stack.enter_context(ExportFiles(self.path))
            if self.kind.is_xml:
                for locator, path, size, version in self.indexed(files, stack).items():
                    if self.excludes.leaving_out(path) is None:
                        yield locator, version, size, None, _extra(path), None
                    else:
                        counts[EXCLUDED] += 1
            yield from self._files(files, counts)

    def _files(self, files: ExportFiles, counts: Counter[str]) -> Iterator[Row]:
        workspace = workspace_in(self, files)
        known = set[bytes]()
        channels = workspace.channels
        for name in sorted(files.names(), key=lambda name: self._inner(name).partition("/")[0] not in channels):
            if self.kind.is_xml and name == self.kind.root + ENTITIES:
                continue
            locator, path = self._member(name, workspace)
            if locator in known:  # a file that is no channel's has the same ids
                locator = _joined(b"m", self._inner(name))
            known.add(locator)
            size = files.size(name)
            if self.excludes.leaving_out(path) is not None:
                counts[EXCLUDED] += 1
            elif not size:
                counts[EMPTY] += 1
            else:
                problem = Problem.TOO_LARGE.value if size > self.size_max else None
                yield locator, UNKNOWN_VERSION if problem else None, size, None, _extra(path, name), problem
        for folder, why in sorted(files.unreadable.items()):
            yield _joined(b"m", folder), UNKNOWN_VERSION, None, None, _extra(folder), why.value

    def _inner(self, name: str) -> str:
        return name.removeprefix(self.kind.root)

    def _member(self, name: str, workspace: Workspace) -> tuple[bytes, str]:
        """Return the locator and the path of a file of the export."""
        inner = self._inner(name)
        day = DAY.fullmatch(inner) if self.kind.word == SLACK else None
        if day is not None:
            channel = workspace.channels.get(day["channel"], day["channel"])
            return _joined(b"d", channel, day["day"]), inner.removesuffix(".json")
        page = HTML_PAGE.search(inner) if self.kind.word == CONFLUENCE and not self.kind.is_xml else None
        if page is not None:
            return _joined(b"p", self.kind.site, page["id"]), f"{self.kind.site}/{inner}"
        return _joined(b"m", inner), inner


def workspace_in(source: ExportSource, files: ExportFiles) -> Workspace:
    """Return the workspace of a Slack export; an empty one for others."""
    if source.kind.word != SLACK:
        return Workspace("", {}, {})
    found = {}
    for name in (*CHANNELS, *USERS):
        if files.size(source.kind.root + name):
            try:
                found[name] = files.read(source.kind.root + name, WORKSPACE_BYTES_MAX)
            except ItemProblem:
                continue  # it is an item too, and that has the problem
    return workspace_of(found)


class ExportReader:
    """Reads items of an export."""

    def __init__(self, source: ExportSource, files: ExportFiles, stack: ExitStack) -> None:
        self._source = source
        self._files = files
        self._stack = stack
        self._index: ExportIndex | None = None
        self._workspace = workspace_in(source, files)

    def read(self, locator: bytes, extra: bytes | None) -> Content:
        """Return an item's texts, or a file."""
        facts = {} if extra is None else json.loads(extra)
        if "member" in facts:
            return self._member(locator, facts["path"], facts["member"])
        if not self._source.kind.is_xml:
            raise Problem.VANISHED.error()
        if self._index is None:
            self._index = self._source.indexed(self._files, self._stack)
        size, version = self._index.measured(locator)
        if not size:
            raise Problem.VANISHED.error()
        return Content(version, self._index.parts(locator), size)

    def _member(self, locator: bytes, path: str, name: str) -> Content:
        data = self._files.read(name, self._source.size_max)
        if locator.startswith(b"d\0"):
            channel = path.rpartition("/")[0]
            parts = list(message_parts(data, channel, self._workspace.users))
            digest = blake3()
            for part in parts:
                for value in (part.row.encode(errors="replace"), part.data):
                    digest.update(len(value).to_bytes(8, "big") + value)
            return Content(b"blake3:" + digest.digest(), parts, len(data))
        shown_path = _page_path(data, path) if locator.startswith(b"p\0") else path
        return Content(b"blake3:" + blake3(data).digest(), [Part(data, shown_path)], len(data))


def _page_path(data: bytes, path: str) -> str:
    """Return the space and the title of a page of an HTML export, whose title is `Space : Page`."""
    title = _TITLE.search(data[:_HEAD_BYTES])
    text = unescape(title[1].decode(errors="replace")).strip() if title else ""
    return f"{path.partition('/')[0]}/{text.partition(' : ')[2] or text}" if text else path


def _joined(kind: bytes, *names: str) -> bytes:
    return b"\0".join((kind, *(name.encode(errors="surrogateescape") for name in names)))


def _extra(path: str, member: str | None = None) -> bytes:
    return json.dumps({"path": path, **({} if member is None else {"member": member})}).encode()
