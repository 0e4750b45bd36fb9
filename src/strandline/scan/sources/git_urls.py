"""Addresses of repositories, as git takes them: https, ssh, `git@host:path`, file; shown and stored without a login.

Invariants: a name of a folder is none, whatever colons it has, if the folder exists; nothing of a login is in a text
that `without_login` returns.
"""

import os
import re
from urllib.parse import urlsplit, urlunsplit

SCHEMES = ("https", "http", "ssh", "git", "file")
_SCP = re.compile(r"(?:[A-Za-z0-9._~-]+@)?[A-Za-z0-9._-]+:(?!//)[^\s]+")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)


def is_git_url(text: str) -> bool:
    """Return whether a text is the address of a repository, and not a path."""
    scheme = _URL.match(text)
    if scheme is not None:
        return text[: scheme.end() - len("://")].lower() in SCHEMES
    return bool(_SCP.fullmatch(text)) and "@" in text.partition(":")[0] and not os.path.lexists(text)


def without_login(url: str) -> str:
    """Return an address without user and password, query and fragment: the name under which it is shown and stored."""
    if _URL.match(url) is None:
        user, mark, rest = url.partition("@")
        return rest if mark and "/" not in user and ":" not in user else url
    parts = urlsplit(url)
    return urlunsplit((parts.scheme.lower(), parts.netloc.rpartition("@")[2], parts.path, "", ""))
