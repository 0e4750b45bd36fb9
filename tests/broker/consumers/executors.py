"""An executor that does its work when it is told to."""

from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

from strandline.gather import InlineExecutor

P = ParamSpec("P")

R = TypeVar("R")


class Later(InlineExecutor):
    """Does what it is given when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self._work: list[Callable[[], object]] = []

    def submit(self, work: Callable[P, R], /, *args: P.args, **options: P.kwargs) -> "Future[R]":
        done: Future[R] = Future()

        def run() -> None:
            done.set_result(work(*args, **options))

        self._work.append(run)
        return done

    def run(self) -> None:
        """Do it now."""
        while self._work:
            self._work.pop(0)()
