"""Python's garbage collector in the processes in which Spark plans, which need not walk over all that they have loaded.

Spark collects after every task and after every call of a planner, and with pyarrow and pandas loaded that takes longer
than most of them. Workers of tasks are forked by our own `daemon`, which sees to it; planners are forked by PySpark's,
whatever the settings say, so the format itself asks for it here.

Invariants: a process that Spark did not start for planning is left alone; what is made later is collected as ever.
"""

import gc
import sys

_PLANNERS = "pyspark.daemon"
_is_done = False


def spare_planner() -> None:
    """Move what a planner has loaded out of the collector's sight, once; elsewhere do nothing."""
    global _is_done  # noqa: PLW0603 - once in a process is what it means
    if not _is_done and _is_planner():
        _is_done = True
        gc.collect()
        gc.freeze()


def _is_planner() -> bool:
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    return spec is not None and spec.name == _PLANNERS
