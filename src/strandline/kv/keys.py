"""Keys and prefixes: what every bucket takes, and which keys a watch is about."""

from collections.abc import Callable, Sequence

from strandline.kv.errors import InvalidKey
from strandline.wire import InvalidSubject, validate_subject


def validate_key(key: str) -> str:
    """Return the key; `InvalidKey` if some backend could not hold it."""
    try:
        return validate_subject(key)
    except InvalidSubject as refused:
        raise InvalidKey(key, refused.problem) from refused


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
