"""What a counter's message says: its value, and what each of its sources has counted to.

Invariants: pure; whatever was written there, it is read, or it is `ValueError`. A value has no more digits than can be
added up and written down again.
"""

import json
import re

from strandline.broker.api.json_text import Json

DIGITS_MAX = 1_000
_NUMBER = re.compile(r"[+-]?[0-9]+")
Sources = dict[str, dict[str, str]]
"""Values by source, and by the subject that they have there."""


def parse_counter(payload: bytes) -> int:
    """Return the value of a counter's message; `ValueError` if it has none."""
    found = _read(payload)
    value = found.get("val") if isinstance(found, dict) else None
    return parse_value(value)


def parse_value(text: object) -> int:
    """Return the number that a text stands for; `ValueError` if it is none."""
    if not isinstance(text, str) or len(text) > DIGITS_MAX + 100 or _NUMBER.fullmatch(text) is None:
        raise ValueError(text)
    return int(text)


def parse_sources(text: bytes) -> Sources:
    """Return what sources have counted to; `ValueError` if it cannot be read."""
    found = _read(text)
    if not isinstance(found, dict) or not all(isinstance(values, dict) for values in found.values()):
        raise ValueError(text)
    return found


def _read(text: bytes) -> Json:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(text) from None
