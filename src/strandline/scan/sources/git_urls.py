"""Addresses of repositories, as git takes them: https, ssh, `git@host:path`, file; shown and stored without a login.

Invariants: a path of a file is no address, whatever colons it has; nothing of a login is in a text that `without_login`
returns: neither user nor password, nor a query, which some servers take tokens in.
"""

import os
import re

SCHEMES = ("https", "http", "ssh", "git")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(.*)", re.ASCII | re.DOTALL)
_SCP = re.compile(r"(?:([^-@/\s:][^@/\s:]*)@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._][A-Za-z0-9._-]*):(?!//)(\S+)", re.ASCII)
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:]*)(?::\d*)?")


def is_git_url(text: str) -> bool:
    """Return whether a text is the address of a repository, and not a path; of a file only if its name says so."""
    found = _URL.fullmatch(text)
    if found is not None:
        scheme = found[1].lower()
        return scheme in SCHEMES or (scheme == "file" and found[3].rstrip("/").endswith(".git"))
    scp = _SCP.fullmatch(text)
    return scp is not None and scp[1] is not None and not os.path.lexists(text)


def scheme_of(url: str) -> str:
    """Return the protocol of an address."""
    found = _URL.fullmatch(url)
    return "ssh" if found is None else found[1].lower()


def has_login(url: str, *, with_password: bool = False) -> bool:
    """Return whether an address has a user, or a password."""
    found = _URL.fullmatch(url)
    user = found[2].rpartition("@")[0] if found is not None else ""
    return ":" in user if with_password else bool(user)


def has_host(url: str) -> bool:
    """Return whether a host and a port are where they should be; a password with a plain `/` moves them."""
    found = _URL.fullmatch(url)
    return found is None or _HOST.fullmatch(found[2].rpartition("@")[2]) is not None


def without_login(url: str) -> str:
    """Return an address without user, password, query and fragment: so it is shown and stored."""
    found = _URL.fullmatch(url)
    if found is not None and not has_host(url):
        rest = "".join(found.groups()[1:])
        return without_login(f"{found[1]}://{rest.rpartition('@')[2]}") if "@" in rest else f"{found[1].lower()}://…"
    if found is not None:
        return f"{found[1].lower()}://{found[2].rpartition('@')[2]}{found[3]}"
    scp = _SCP.fullmatch(url)
    return f"{scp[2]}:{scp[3]}" if scp is not None else url
