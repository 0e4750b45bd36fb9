"""Path and parameters of a monitoring URL, read as nats-server reads them."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
LIMIT = 1024


class BadQuery(ValueError):
    """A query that is answered with status 400 and this text."""


@dataclass(frozen=True, slots=True)
class Query:
    """A path and its parameters; a missing parameter reads as its zero value."""

    path: str
    parameters: dict[str, str]

    def text(self, name: str) -> str:
        """Return a parameter as text."""
        return self.parameters.get(name, "")

    def flag(self, name: str) -> bool:
        """Return a boolean parameter."""
        given = self.text(name)
        if given and given not in BOOLEANS:
            problem = f'strconv.ParseBool: parsing "{given}": invalid syntax'
            raise BadQuery(f"Error decoding boolean for '{name}': {problem}")
        return BOOLEANS.get(given, False)

    def number(self, name: str, default: int = 0) -> int:
        """Return an integer parameter."""
        given = self.text(name)
        if not given:
            return default
        if re.fullmatch(r"[+-]?[0-9]{1,19}", given) is None:
            problem = f'strconv.Atoi: parsing "{given}": invalid syntax'
            raise BadQuery(f"Error decoding int for '{name}': {problem}")
        return int(given)

    @property
    def window(self) -> tuple[int, int]:
        """Return offset and limit of a list."""
        limit = self.number("limit")
        return max(0, self.number("offset")), limit if limit > 0 else LIMIT


def parse_target(target: str) -> Query:
    """Return the query in the target of an HTTP request."""
    parts = urlsplit(target)
    return Query(parts.path, {name: values[-1] for name, values in parse_qs(parts.query).items()})
