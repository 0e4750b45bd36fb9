"""Where names stand in a column of names, asked batch by batch.

Two listings of the same source have the same order, so a batch is first looked for where the last one ended; only names
that are not there are looked up among all, in an index that is made then.
"""

from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_ABSENT = -1


class Places:
    """A column of names, of which none is there twice."""

    def __init__(self, names: pa.Array) -> None:
        self._names = names
        self._next = 0

    def find(self, asked: pa.Array) -> pa.Array:
        """Return where each name stands, null where it does not."""
        here = self._names.slice(self._next, len(asked))
        if here.equals(asked):
            self._next += len(asked)
            return pa.array(np.arange(self._next - len(asked), self._next))
        window = self._names.slice(self._next, 2 * len(asked))
        places = pc.add(pc.cast(pc.index_in(asked, window), pa.int64()), self._next)
        if places.null_count:
            missing = pc.is_null(places)
            found = [self._index.get(name, _ABSENT) for name in asked.filter(missing).to_pylist()]
            rest = pa.array([None if place == _ABSENT else place for place in found], pa.int64())
            places = pc.replace_with_mask(places, missing, rest)
        last = pc.max(places).as_py()
        self._next = self._next if last is None else last + 1
        return places

    @cached_property
    def _index(self) -> dict[bytes, int]:
        return {name: place for place, name in enumerate(self._names.to_pylist())}
