"""What is wrong with a command line or a configuration file, all of it at once."""

from collections.abc import Sequence

from strandline.errors import InvalidInput


class ConfigurationRefused(InvalidInput):
    """A configuration that cannot be used; each problem begins with the place of what is wrong (`file:line:column`)."""

    def __init__(self, problems: Sequence[str], *, hint: str | None = None) -> None:
        super().__init__("\n".join(problems), hint=hint)
        self.problems = tuple(problems)


class NotServed(ConfigurationRefused):
    """A configuration that asks for something nats-server has and this broker has not."""


class FlagRefused(InvalidInput):
    """A command line that cannot be used."""
