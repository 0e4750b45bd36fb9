"""Many objects read side by side, in the order asked for, with a bound on how many are in memory."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

THREADS = 16
AT_ONCE = 32
"""Objects that were read and not taken yet."""
_FEW = 4
T = TypeVar("T")


def read_each(read: Callable[[str], T], keys: Iterable[str]) -> Iterator[tuple[str, T]]:
    """Yield each key with what was read; a few keys are read one after another."""
    rest = iter(keys)
    some = list(islice(rest, _FEW + 1))
    if len(some) <= _FEW:
        yield from ((key, read(key)) for key in some)
        return
    with ThreadPoolExecutor(THREADS) as pool:
        while some:
            yield from zip(some, pool.map(read, some), strict=True)
            some = list(islice(rest, AT_ONCE))
