"""Errors of command lines and configuration files."""

from collections.abc import Sequence

from strandline.errors import InvalidInput


class ConfigurationRefused(InvalidInput):
    """An invalid configuration; each problem begins with its place (`file:line:column`)."""

    def __init__(self, problems: Sequence[str], *, hint: str | None = None) -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = tuple(problems)


class NotServed(ConfigurationRefused):
    """A configuration with a feature of nats-server that this broker lacks."""


class FlagRefused(InvalidInput):
    """An invalid command line."""
