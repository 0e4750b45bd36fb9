"""What is asked for in a URL, read as nats-server reads it."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

TRUTHS = {
    **dict.fromkeys(("1", "t", "T", "true", "TRUE", "True"), True),
    **dict.fromkeys(("0", "f", "F", "false", "FALSE", "False"), False),
}
LIMIT = 1024


class BadQuestion(ValueError):
    """A question that is answered with 400 and this text."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A path and its parameters; what is not given reads as nothing."""

    path: str
    parameters: dict[str, str]

    def text(self, name: str) -> str:
        """Return a parameter as it is."""
        return self.parameters.get(name, "")

    def truth(self, name: str) -> bool:
        """Return a parameter that is a boolean."""
        given = self.text(name)
        if given and given not in TRUTHS:
            problem = f'strconv.ParseBool: parsing "{given}": invalid syntax'
            raise BadQuestion(f"Error decoding boolean for '{name}': {problem}")
        return TRUTHS.get(given, False)

    def number(self, name: str, default: int = 0) -> int:
        """Return a parameter that is a whole number."""
        given = self.text(name)
        if not given:
            return default
        if re.fullmatch(r"[+-]?[0-9]{1,19}", given) is None:
            problem = f'strconv.Atoi: parsing "{given}": invalid syntax'
            raise BadQuestion(f"Error decoding int for '{name}': {problem}")
        return int(given)

    @property
    def window(self) -> tuple[int, int]:
        """Return how many of a list to leave out and how many to show."""
        limit = self.number("limit")
        return max(0, self.number("offset")), limit if limit > 0 else LIMIT


def parse_target(target: str) -> Asked:
    """Return what the target of a request asks for."""
    parts = urlsplit(target)
    return Asked(parts.path, {name: values[-1] for name, values in parse_qs(parts.query).items()})
