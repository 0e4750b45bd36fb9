"""Which program an export is of, by its files: Slack, Jira or Confluence, and which site it is of.

    Slack         users.json (or org_users.json) beside channels.json, groups.json, mpims.json or dms.json
    Jira          entities.xml that begins with <entity-engine-xml>
    Confluence    entities.xml that begins with <hibernate-generic>; or index.html and pages such as Home_98310.html

Invariant: an export that is of no known form, or of another than was asked for, is an error before anything is listed.
"""

import re
from typing import NamedTuple

from strandline.detect.locations import shown
from strandline.scan.sources.errors import InputUnusable, ItemProblem
from strandline.scan.sources.export_files import BROKEN, ExportFiles
from strandline.scan.sources.slack_messages import CHANNELS, USERS, WORKSPACE_BYTES_MAX, workspace_of

SLACK, JIRA, CONFLUENCE = "slack", "jira", "confluence"
SCHEMES = {"export:": "", "slack:": SLACK, "jira:": JIRA, "confluence:": CONFLUENCE}
ENTITIES, DESCRIPTOR, INDEX = "entities.xml", "exportDescriptor.properties", "index.html"
HTML_PAGE = re.compile(r"(?:^|[/_])(?P<id>\d+)\.html$")
_HEAD_BYTES = 1 << 20
_SERVER_ID = re.compile(rb"Server ID\s*:\s*([A-Z0-9-]{8,40})")
_SPACE_KEY = re.compile(rb"^spaceKey\s*=\s*(\S+)", re.MULTILINE)
_HINT = "give the folder or the zip as the program exported it"


class Kind(NamedTuple):
    """The program, the site as the export names it (empty if it does not), and the folder that the files are in."""

    word: str
    site: str
    root: str
    is_xml: bool

    @property
    def tag(self) -> str:
        """Return the kind of source, in eight bytes."""
        return self.word[:8]


def recognised(files: ExportFiles, asked: str) -> Kind:
    """Return the kind of an export; `asked` is the one that the address names, or empty."""
    names = set(files.names())
    kind = _slack(files, names) or _xml(files, names) or _html(files, names)
    if kind is None:
        what = f"it is not an export of {asked.capitalize()}" if asked else "it is no export of a known form"
        raise InputUnusable(shown(files.path), what, hint=_HINT)
    if asked and kind.word != asked:
        raise InputUnusable(shown(files.path), f"it is an export of {kind.word.capitalize()}", hint="write export:PATH")
    return kind


def _root(names: set[str], *markers: str) -> str | None:
    """Return the folder that a marker is in: the export's own, or one above all of its files."""
    found = [name for name in names if name.rpartition("/")[2] in markers and name.count("/") <= 1]
    return min((name[: name.rfind("/") + 1] for name in found), key=len, default=None)


def _slack(files: ExportFiles, names: set[str]) -> Kind | None:
    root = _root(names, *USERS)
    if root is None or not any(root + name in names for name in CHANNELS):
        return None
    users = {name: _begin(files, root + name, WORKSPACE_BYTES_MAX) for name in USERS if root + name in names}
    return Kind(SLACK, workspace_of(users).team, root, is_xml=False)


def _xml(files: ExportFiles, names: set[str]) -> Kind | None:
    root = _root(names, ENTITIES)
    if root is None:
        return None
    head = _begin(files, root + ENTITIES, _HEAD_BYTES)
    if b"<entity-engine-xml" in head:
        server = _SERVER_ID.search(head)
        return Kind(JIRA, server[1].decode() if server else "", root, is_xml=True)
    if b"<hibernate-generic" in head:
        described = _begin(files, root + DESCRIPTOR, _HEAD_BYTES) if root + DESCRIPTOR in names else b""
        space = _SPACE_KEY.search(described)
        return Kind(CONFLUENCE, space[1].decode(errors="replace") if space else "", root, is_xml=True)
    return None


def _html(files: ExportFiles, names: set[str]) -> Kind | None:
    root = _root(names, INDEX)
    if root is None or not any(HTML_PAGE.search(name) for name in names):
        return None
    head = _begin(files, root + INDEX, _HEAD_BYTES).lower()
    if b"confluence" not in head and b"atlassian" not in head:
        return None
    return Kind(CONFLUENCE, root.strip("/"), root, is_xml=False)


def _begin(files: ExportFiles, name: str, size: int) -> bytes:
    try:
        with files.open(name) as stream:
            return stream.read(size)
    except (ItemProblem, OSError, *BROKEN) as error:
        raise InputUnusable(f"{shown(files.path)}, {shown(name)}", "it cannot be read", hint=_HINT) from error
