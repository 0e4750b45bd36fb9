"""Errors of rules; part of the one tree of `strandline.errors`.

    InvalidInput
    └── RulesInvalid        a rules file, or a value in it, cannot be used
        └── RegexInvalid    a regular expression of a rule cannot be used

Invariants: a message names the file or the rule and the key, never a byte that was scanned.
"""

from typing import Self

from strandline.errors import InvalidInput


class RulesInvalid(InvalidInput):
    """A rules file, or a value in it, cannot be used; `where` is the file or the rule."""

    def __init__(self, where: str, problem: str, *, hint: str | None = None) -> None:
        super().__init__(f"{where}: {problem}", hint=hint)
        self.where = where
        self.problem = problem

    def within(self, file: str) -> Self:
        """Add the file to the message, unless it names one; return the error."""
        if not self.where.startswith(file):
            self.where = f"{file}: {self.where}"
            self.args = (f"{self.where}: {self.problem}",)
        return self


class RegexInvalid(RulesInvalid):
    """A regular expression cannot be used; `position` is an index into its text."""

    def __init__(self, where: str, problem: str, position: int | None = None, *, hint: str | None = None) -> None:
        at = "" if position is None else f" at position {position}"
        super().__init__(where, f"regular expression: {problem}{at}", hint=hint)
        self.position = position
