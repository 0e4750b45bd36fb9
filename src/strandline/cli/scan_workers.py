"""The workers of `strandline scan`: this machine's for little work, Spark's for the rest, unless options say.

Invariants: one rule decides, by the number of items to scan (`FEW_ITEMS`), and `--explain` prints what it comes to;
results do not depend on it. `--with-spark`, and any option of Spark, means Spark; `--without-spark` means this machine.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from strandline.errors import InvalidInput, MissingExtra
from strandline.scan import LocalWorkers, Tell, Workers, WorkersBySize
from strandline.scan.workers import FEW_ITEMS, LARGE_ITEMS, is_large, is_little

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class WorkerOptions:
    """The options about workers; `has_options` if one of them is for Spark alone."""

    factory: "Callable[[], SparkSession]"
    master: str | None
    with_spark: bool
    without_spark: bool
    has_options: bool

    def __post_init__(self) -> None:
        if self.without_spark and self.has_options:
            hint = "leave out --master, --conf and --ui"
            raise InvalidInput("--without-spark excludes the options of Spark", hint=hint)
        if self.without_spark and self.with_spark:
            raise InvalidInput("--with-spark and --without-spark exclude each other", hint="leave out one of them")
        if self._is_spark:
            self._import()

    @property
    def _is_spark(self) -> bool:
        return self.with_spark or self.has_options

    def workers(self, tell: Tell) -> Workers:
        """Return the workers; `tell` is given the warnings of Spark's."""
        here = LocalWorkers(processes=_cores())
        if self.without_spark or not (self._is_spark or _has_spark()):
            return here
        many: Workers = self._import()(self.factory, self.master, tell)
        return many if self._is_spark else WorkersBySize(here, many)

    def explained(self, items: int) -> str:
        """Return which workers would scan a number of items, and why."""
        if not items:
            return "none: there is nothing to scan"
        cores = _cores()
        here = f"this machine, without Spark, on {'1 core' if cores == 1 else f'up to {cores} cores'}"
        if self.without_spark:
            return f"{here} (--without-spark)"
        if self._is_spark:
            return f"Spark, {self.master or 'local[*]'} ({'--with-spark' if self.with_spark else 'its options say so'})"
        if is_little(items):
            return f"{here} (fewer than {FEW_ITEMS:,} items; --with-spark for Spark)"
        if not _has_spark():
            return f"{here} (PySpark is not installed)"
        return f"Spark, local[*] ({FEW_ITEMS:,} items or more; --without-spark for this machine alone)"

    def planner_explained(self, items: int) -> str:
        """Return what would list, plan and settle a number of listed items, and why."""
        if self.plans_in_tasks(items):
            return f"tasks of Spark ({LARGE_ITEMS:,} listed items or more)"
        return "this process" if not self._has_tasks else f"this process (fewer than {LARGE_ITEMS:,} listed items)"

    def plans_in_tasks(self, items: int) -> bool:
        """Return whether tasks would list, plan and settle a number of listed items, in parts."""
        return self._has_tasks and is_large(items)

    @property
    def _has_tasks(self) -> bool:
        return not self.without_spark and (self._is_spark or _has_spark())

    @staticmethod
    def _import() -> "Callable[..., Workers]":
        try:
            from strandline.spark.workers import SparkWorkers  # noqa: PLC0415 - an extra, which not every scan needs
        except MissingExtra as error:
            error.hint = f"{error.hint}, or scan on this machine: --without-spark"
            raise
        return SparkWorkers


def session_factory(master: str | None, conf: list[str], *, ui: bool) -> "Callable[[], SparkSession]":
    """Return a function that makes a Spark session; invalid settings are an error at once."""
    settings: dict[str, str] = {}
    for entry in conf:
        name, mark, value = entry.partition("=")
        if not mark or not name.startswith("spark."):
            raise InvalidInput(f"--conf {name}: not a Spark setting", hint="write --conf spark.name=value")
        settings[name] = value
    if master is not None and not master.startswith(
        "spark://"
    ):  # whether one of those answers is asked when it is needed
        from strandline.spark.master import check_master  # noqa: PLC0415 - an extra, which not every scan needs

        check_master(master)

    def make() -> "SparkSession":
        from strandline.spark import session  # noqa: PLC0415 - as above

        return session(master=master, ui=ui, settings=settings)

    return make


def _has_spark() -> bool:
    return find_spec("pyspark") is not None


def _cores() -> int:
    return len(os.sched_getaffinity(0))
