"""The texts of an XML export by issue or page: entities of one issue are all over the file, so one pass collects them.

    part      owner, row, field, body      a text, and the entity that it belongs to
    entity    owner, parent, locator …     an issue or a page, or what leads to one: a comment, an older version

Invariants: the index is a temporary database of SQLite without a name, which is gone with its process; an item's texts
come in an order that does not depend on that of the export, so that two exports of the same content have one version.
"""

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple, Self

from blake3 import blake3

from strandline.scan.sources.export_xml import Record
from strandline.scan.sources.source import Part

ISSUE, PAGE, OTHER = b"i", b"p", b"o"
_PARENTS_MAX = 8
_SCHEMA = """
CREATE TABLE part (owner TEXT, row TEXT, field TEXT, body BLOB, lost INTEGER);
CREATE TABLE entity (owner TEXT PRIMARY KEY, parent TEXT, locator BLOB, path TEXT, row TEXT, field TEXT) WITHOUT ROWID;
CREATE TABLE resolved (owner TEXT PRIMARY KEY, locator BLOB, path TEXT, row TEXT, field TEXT) WITHOUT ROWID;
"""
_READ = """
SELECT part.body, resolved.path, coalesce(nullif(part.row, ''), resolved.row),
       resolved.field || CASE WHEN resolved.field <> '' AND part.field <> '' THEN '/' ELSE '' END || part.field,
       part.lost
FROM resolved JOIN part ON part.owner = resolved.owner
WHERE resolved.locator = ? ORDER BY 3, 4, 1
"""
_ISSUE_TEXTS = ("summary", "description", "environment")
_OF_ISSUE = {"Action": "comment", "Worklog": "worklog", "CustomFieldValue": "customfield"}
_CONTENTS = frozenset({"Page", "BlogPost", "Comment", "CustomContentEntityObject", "SpaceDescription", "Attachment"})
_PARENT_NAMES = ("originalVersion", "originalVersionId", "containerContent", "owner", "content", "parentComment")


class Entity(NamedTuple):
    """An issue or a page, or what leads to its `parent`."""

    owner: str
    parent: str | None = None
    locator: bytes | None = None
    path: str = ""
    row: str = ""
    field: str = ""


class ExportIndex:
    """Texts by their items; fill it with records, then `finish` it."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.executescript(_SCHEMA)
        self._names: dict[str, str] = {}
        self._database.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add_jira(self, record: Record) -> None:
        """Take an entity of Jira."""
        fields, number = record.fields, record.fields.get("id", "")
        match record.kind:
            case "Issue":
                self._entity(Entity(f"issue:{number}", locator=None, path=_issue_key(fields)))
                for name in _ISSUE_TEXTS:
                    self._part(f"issue:{number}", "", name, fields.get(name), record.cut)
            case "Action" | "Worklog" | "CustomFieldValue" as kind if fields.get("issue"):
                which = fields.get("customfield", "") if kind == "CustomFieldValue" else number
                for name in ("body", "stringvalue", "textvalue"):
                    field = f"{_OF_ISSUE[kind]}/{which}"
                    self._part(f"issue:{fields['issue']}", "", field, fields.get(name), record.cut)
            case "ChangeGroup" if fields.get("issue"):
                self._entity(Entity(f"group:{number}", f"issue:{fields['issue']}"))
            case "ChangeItem" if fields.get("group"):
                for name in ("oldstring", "newstring", "oldvalue", "newvalue"):
                    self._part(f"group:{fields['group']}", "", f"history/{number}/{name}", fields.get(name), record.cut)
            case "Project" | "CustomField" as kind:
                self._names[f"{kind}:{number}"] = fields.get("key") or fields.get("name") or number
                self._other(record)
            case _:
                self._other(record)

    def add_confluence(self, record: Record) -> None:
        """Take an object of Confluence."""
        fields, number = record.fields, record.fields.get("id", "")
        if record.kind == "BodyContent":
            (content, *_) = record.references.get("content") or [""]
            owner = f"content:{content}" if content else f"body:{number}"
            self._part(owner, "", "", fields.get("body"), record.cut)
        elif record.kind in _CONTENTS:
            self._content(record, number)
        else:
            if record.kind == "Space":
                self._names[f"Space:{number}"] = fields.get("key", number)
            self._other(record)

    def _content(self, record: Record, number: str) -> None:
        fields, owner = record.fields, f"content:{number}"
        parents = [one for name in _PARENT_NAMES for one in record.references.get(name, [fields.get(name, "")]) if one]
        (space, *_) = record.references.get("space") or [""]
        is_page = record.kind in {"Page", "BlogPost"}
        locator = b"\0".join((space.encode(), number.encode())) if is_page or not parents else None
        own = "" if is_page else f"{record.kind.lower()}/{number}"
        parent = f"content:{parents[0]}" if parents else None
        self._entity(Entity(owner, parent, locator, fields.get("title", ""), fields.get("version", ""), own))
        for body in record.references.get("bodyContents", []):
            self._entity(Entity(f"body:{body}", owner))
        texts = (("title", fields.get("title")), ("comment", fields.get("versionComment")))
        for name, text in texts:
            self._part(owner, "", name, text, 0)

    def _other(self, record: Record) -> None:
        """Keep an entity that belongs to no issue or page, such as a mail server: its fields, a line each."""
        lines = "\n".join(f"{name}={value}" for name, value in record.fields.items() if name != "id")
        self._part(f"other:{record.kind}", record.fields.get("id", ""), "", lines, record.cut)

    def _entity(self, entity: Entity) -> None:
        self._database.execute("INSERT OR REPLACE INTO entity VALUES (?, ?, ?, ?, ?, ?)", entity)

    def _part(self, owner: str, row: str, field: str, text: str | None, cut: int) -> None:
        if text and text.strip():
            body = text.encode(errors="replace")
            self._database.execute("INSERT INTO part VALUES (?, ?, ?, ?, ?)", (owner, row, field, body, cut))

    def finish(self) -> None:
        """Find the issue or page of every text."""
        self._database.execute("CREATE INDEX part_owner ON part (owner)")
        for (owner,) in self._database.execute("SELECT DISTINCT owner FROM part ORDER BY owner").fetchall():
            self._database.execute("INSERT INTO resolved VALUES (?, ?, ?, ?, ?)", (owner, *self._resolved(owner)))
        self._database.execute("CREATE INDEX resolved_locator ON resolved (locator)")

    def _resolved(self, owner: str) -> tuple[bytes, str, str, str]:
        first = at = self._found(owner)
        for _ in range(_PARENTS_MAX):
            above = None if at is None or at.parent is None else self._found(at.parent)
            if above is None:
                break
            at = above
            if first is not None and first.owner.startswith("body:"):
                first = at
        if at is None or first is None:
            kind = owner.removeprefix("other:") if owner.startswith("other:") else owner.partition(":")[0]
            return OTHER + b"\0" + kind.encode(), f"({kind})", "", ""
        if at.owner.startswith("issue:"):
            key = self._issue(at.path)
            return ISSUE + b"\0" + key.encode(errors="replace"), key, "", first.field
        space, _, number = (at.locator or b"\0" + at.owner.partition(":")[2].encode()).partition(b"\0")
        key = self._names.get(f"Space:{space.decode()}", space.decode())
        path = f"{key}/{at.path}".strip("/") or f"({at.owner})"
        return b"\0".join((PAGE, key.encode(errors="replace"), number)), path, first.row, first.field

    def _issue(self, key: str) -> str:
        """Return the key of an issue; later versions of Jira store the project and the number apart."""
        project, _, number = key.rpartition("-")
        return f"{self._names.get(f'Project:{project}', project)}-{number}"

    def _found(self, owner: str) -> Entity | None:
        row = self._database.execute("SELECT * FROM entity WHERE owner = ?", (owner,)).fetchone()
        return None if row is None else Entity(*row)

    def items(self) -> Iterator[tuple[bytes, str, int, bytes]]:
        """Yield locators in their order, with path, size and version."""
        listed = "SELECT locator, min(path) FROM resolved GROUP BY locator ORDER BY locator"
        for locator, path in self._database.execute(listed).fetchall():
            size, version = self.measured(locator)
            yield locator, path, size, version

    def measured(self, locator: bytes) -> tuple[int, bytes]:
        """Return the size and the version of an item."""
        digest, size = blake3(), 0
        for part in self.parts(locator):
            size += len(part.data)
            for value in (part.row.encode(errors="replace"), part.field.encode(errors="replace"), part.data):
                digest.update(len(value).to_bytes(8, "big") + value)
        return size, b"blake3:" + digest.digest()

    def parts(self, locator: bytes) -> Iterator[Part]:
        """Yield the texts of an item."""
        for address, (body, path, row, field, lost) in enumerate(self._database.execute(_READ, (locator,))):
            named = self._field(field)
            yield Part(body, path, address, row=row, field=named, lost=lost)

    def _field(self, field: str) -> str:
        kind, _, number = field.partition("/")
        return f"{kind}/{self._names.get(f'CustomField:{number}', number)}" if kind == "customfield" else field


def _issue_key(fields: dict[str, str]) -> str:
    return fields.get("key") or f"{fields.get('project', '')}-{fields.get('number') or fields.get('id', '')}"
