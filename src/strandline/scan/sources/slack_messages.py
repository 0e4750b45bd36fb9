"""Messages of a Slack export: `<channel>/<YYYY-MM-DD>.json`, a list of messages with everything in them.

The text of a message comes first, then that of blocks, attachments, files and comments, each once: Slack writes most
texts twice. Ids, avatars and profiles of users are left out: they change from one export to the next.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from strandline.scan.sources.source import Part

DAY = re.compile(r"(?P<channel>[^/]+)/(?P<day>\d{4}-\d\d-\d\d)\.json")
CHANNELS = ("channels.json", "groups.json", "mpims.json", "dms.json")
USERS = ("users.json", "org_users.json")
WORKSPACE_BYTES_MAX = 256 << 20
"""The size of a list of channels or users that is read, whatever size of files is scanned: it decides identities."""
_SKIPPED = frozenset(
    {
        *("type", "subtype", "ts", "user", "team", "user_team", "source_team", "client_msg_id", "bot_id", "app_id"),
        *("user_profile", "bot_profile", "block_id", "reactions", "thread_ts", "parent_user_id", "edited", "icons"),
        *("reply_users", "latest_reply", "mimetype", "filetype", "style", "last_read", "display_as_bot", "replies"),
        *("id", "username"),
    }
)
_COMPARED = 8
_ESCAPES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))


class Workspace(NamedTuple):
    """What an export says of itself: its team, channels by the names of their folders, and users."""

    team: str
    channels: Mapping[str, str]
    users: Mapping[str, str]


def workspace_of(files: Mapping[str, bytes]) -> Workspace:
    """Return the workspace out of the files that are there of `CHANNELS` and `USERS`; a broken one counts as empty."""
    users = [one for name in USERS for one in _objects(files.get(name))]
    channels = {
        str(one["name"]): str(one["id"])
        for name in CHANNELS
        for one in _objects(files.get(name))
        if one.get("name") and one.get("id")
    }
    teams = Counter(str(one["team_id"]) for one in users if one.get("team_id"))
    named = {str(one["id"]): str(one.get("name") or one["id"]) for one in users if one.get("id")}
    return Workspace(max(sorted(teams), key=teams.__getitem__, default=""), channels, named)


def message_parts(data: bytes, channel: str, users: Mapping[str, str]) -> Iterator[Part]:
    """Yield a part for each message of a day; a file of another form is one part as it is."""
    try:
        messages = json.loads(data)
    except (ValueError, RecursionError):
        messages = None
    if not isinstance(messages, list):
        yield Part(data, channel)
        return
    for address, message in enumerate(messages):
        facts = message if isinstance(message, dict) else {"text": message}
        user = str(facts.get("user") or facts.get("username") or facts.get("bot_id") or "")
        text = "\n".join(_texts(facts)).encode(errors="replace")
        yield Part(text, channel, address, row=str(facts.get("ts", "")), field=users.get(user, user))


def _texts(message: dict[str, Any]) -> list[str]:
    """Return the texts of a message, without those that an earlier one contains."""
    taken, known = list[str](), set[str]()
    for text in _strings({"text": message.get("text"), **message}):
        plain = text
        for escaped, character in _ESCAPES:
            plain = plain.replace(escaped, character)
        if plain.strip() and plain not in known and not any(plain in earlier for earlier in taken[:_COMPARED]):
            taken.append(plain)
            known.add(plain)
    return taken


def _strings(value: Any) -> Iterator[str]:  # noqa: ANN401 - whatever JSON holds
    """Yield the strings of a value in their order."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting += reversed([item for name, item in one.items() if name not in _SKIPPED])
        elif isinstance(one, list):
            waiting += reversed(one)


def _objects(data: bytes | None) -> list[dict[str, Any]]:
    try:
        found = json.loads(data or b"[]")
    except (ValueError, RecursionError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
