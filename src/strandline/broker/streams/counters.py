"""The message of a counter: its value, and the value of each of its sources.

Invariants: pure; anything that is not a counter is a `ValueError`. The number of digits is bounded, so that values can
be added and formatted.
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
    """Return the values of the sources; `ValueError` if they cannot be read."""
    found = _read(text)
    if not isinstance(found, dict) or not all(isinstance(values, dict) for values in found.values()):
        raise ValueError(text)
    return found


def _read(text: bytes) -> Json:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError(text) from None
