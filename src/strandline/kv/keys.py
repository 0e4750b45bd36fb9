"""Keys, prefixes and names: what every bucket takes, and which keys a watch is about.

A key is tokens separated by dots, of any characters but white space and control characters, at most `KEY_BYTES_MAX`
bytes as UTF-8; a token is not empty, nor `*` or `>` alone. That is what a NATS subject allows, and more than the
convention of NATS buckets, `[-/_=.a-zA-Z0-9]+`: other clients do not address a key outside of it.
"""

import re
from collections.abc import Callable, Sequence

from strandline.kv.errors import InvalidBucket, InvalidKey
from strandline.wire import InvalidSubject, validate_subject

KEY_BYTES_MAX = 3000
"""A server takes 4,096 bytes for a line with the key, the bucket, and where to answer."""

_BUCKET = re.compile(r"[a-zA-Z0-9_-]{1,200}")


def validate_bucket(name: str) -> str:
    """Return the name; `InvalidBucket` if some backend could not have such a bucket."""
    if not _BUCKET.fullmatch(name):
        raise InvalidBucket(name)
    return name


def validate_key(key: str) -> str:
    """Return the key; `InvalidKey` if some backend could not hold it."""
    try:
        validate_subject(key)
        size = len(key.encode())
    except InvalidSubject as refused:
        raise InvalidKey(key, refused.problem) from refused
    except UnicodeEncodeError as refused:
        raise InvalidKey(key, "is not a text of Unicode") from refused
    if size > KEY_BYTES_MAX:
        raise InvalidKey(f"{key[:40]}…", f"is longer than {KEY_BYTES_MAX:,} bytes")
    return key


def validate_prefix(prefix: str) -> str:
    """Return the prefix; `InvalidKey` unless it is empty or whole tokens with a dot after the last."""
    if prefix:
        if not prefix.endswith("."):
            raise InvalidKey(prefix, "does not end with a dot, as a prefix does")
        validate_key(prefix[:-1])
    return prefix


def key_filter(prefixes: Sequence[str]) -> Callable[[str], bool]:
    """Return a test for keys below any of some prefixes; `InvalidKey` if one is wrong or there are none."""
    if not prefixes:
        raise InvalidKey("", "is not among no prefixes at all")
    starts = tuple(validate_prefix(prefix) for prefix in prefixes)
    return lambda key: key.startswith(starts)
