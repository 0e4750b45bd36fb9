"""How hard tests look: `make test` takes a sample of what `make test-long` does in full.

Invariants: a number of examples stands beside the hundred that hypothesis tries by default: `make test` tries three
tenths of it, `make test-long` ten times as many, and each run draws others. A test that is cut into parts runs the
first in `make test` and all of them in `make test-long`, and each case is in exactly one part. A long test that is cut
runs the first in `make test-long`, and the others in a campaign.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import pytest
from hypothesis import settings

DEFAULT_EXAMPLES = 100
"""How many examples hypothesis tries by default."""

Case = TypeVar("Case")
Marks: TypeAlias = pytest.MarkDecorator | Collection[pytest.MarkDecorator]


def examples(count: int, **more: Any) -> settings:  # noqa: ANN401 - those of hypothesis
    """Return settings with a number of examples, which the profile scales as it does the default number."""
    return settings(max_examples=count * settings().max_examples // DEFAULT_EXAMPLES, **more)


@dataclass(frozen=True)
class Part:
    """One of the parts that a test is cut into."""

    number: int
    count: int

    def has(self, position: int) -> bool:
        """Tell whether the case at a position is in it."""
        return position % self.count == self.number

    def of(self, cases: Sequence[Case]) -> Sequence[Case]:
        """Return the cases that are in it."""
        return cases[self.number :: self.count]


def parts(count: int) -> pytest.MarkDecorator:
    """Cut a test into parts, given to it as `part`; all but the first are long."""
    return _cut(count, (), pytest.mark.long)


def long_parts(count: int, campaign: str) -> pytest.MarkDecorator:
    """Cut a test into parts, given to it as `part`; the first is long, and the others are a campaign's."""
    return _cut(count, pytest.mark.long, pytest.mark.campaign(campaign))


def _cut(count: int, first: Marks, others: Marks) -> pytest.MarkDecorator:
    cut = [pytest.param(Part(number, count), marks=others if number else first) for number in range(count)]
    return pytest.mark.parametrize("part", cut, ids=lambda part: f"part {part.number + 1}")
