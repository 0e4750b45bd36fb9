"""Shared code of contract checks: reports of broken promises.

Invariants: a check either returns or raises `ContractBroken` with a sentence that makes sense without its source; an
unexpected error of the backend is reported the same way.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from strandline.errors import StrandlineError


class ContractBroken(AssertionError):
    """A backend breaks its contract; `check` names the promise, `problem` the observed result."""

    def __init__(self, check: str, problem: str) -> None:
        super().__init__(f"{check.replace('_', ' ')}: {problem}" if check else problem)
        self.check = check
        self.problem = problem

    def __reduce__(self) -> tuple[type["ContractBroken"], tuple[str, str]]:
        return type(self), (self.check, self.problem)


@contextmanager
def named(check: str) -> Iterator[None]:
    """Add the name of the check to errors of the body."""
    try:
        yield
    except ContractBroken as broken:
        raise ContractBroken(check, broken.problem) from broken
    except Exception as error:
        raise ContractBroken(check, f"raised {type(error).__name__}: {error}") from error


def expect(condition: object, problem: str) -> None:
    """Report the problem unless the condition holds."""
    if not condition:
        raise ContractBroken("", problem)


def same(what: str, seen: object, wanted: object) -> None:
    """Report the observed value unless it is the wanted one."""
    expect(seen == wanted, f"{what} should be {wanted!r}, but is {seen!r}")


def refuses(
    what: str,
    kinds: type[StrandlineError] | tuple[type[StrandlineError], ...],
    call: Callable[..., object],
    /,
    *args: Any,  # noqa: ANN401 - whatever the call takes
    **named_args: Any,  # noqa: ANN401 - the same
) -> None:
    """Report a call that does not raise one of some errors."""
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    names = " or ".join(kind.__name__ for kind in kinds)
    try:
        result = call(*args, **named_args)
    except kinds:
        return
    except Exception as error:
        raise ContractBroken("", f"{what} should raise {names}, but raised {error!r}") from error
    raise ContractBroken("", f"{what} should raise {names}, but returned {result!r}")
