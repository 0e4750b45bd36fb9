"""How psycopg sends our binary arrays: as they are."""

from psycopg.adapt import Dumper
from psycopg.pq import Format

from strandline.pipeline.sql.arrays import BinaryArray


class ArrayDumper(Dumper):
    """Hands an array to the server unchanged."""

    format = Format.BINARY

    def dump(self, obj: BinaryArray) -> bytes:
        """Return the array."""
        return obj
