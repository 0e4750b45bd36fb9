"""Passwords inside values: in the user info or the query of an address, and in `NAME=VALUE` settings.

Invariants: `masked` keeps no character of a value that `has_password` reports, also where a password holds an `@`. The
user info of a NATS address without a colon is a token.
"""

import re

MASK = "***"
_NAME = r"[\w.-]*(?:password|passwd|secret|token|(?:access|secret)[._-]?key|account\.key[\w.-]*|client\.secret[\w.-]*)"
_PATTERNS = (
    re.compile(r"(://[^/@:\s]*:)[^/\s]+(?=@)"),
    re.compile(r"((?:nats|tls|wss?)://)[^/@:\s]+(?=@)"),
    re.compile(rf"((?:^|[\s?&]){_NAME}=)[^&\s]+", re.IGNORECASE),
)


def has_password(text: str) -> bool:
    """Return whether a value has a password in it."""
    return any(pattern.search(text) for pattern in _PATTERNS)


def masked(value: object) -> object:
    """Return a value, or a list of them, with each password replaced by `***`."""
    if isinstance(value, list):
        return [masked(item) for item in value]
    if not isinstance(value, str):
        return value
    for pattern in _PATTERNS:
        value = pattern.sub(rf"\1{MASK}", value)
    return value
