"""The interface of a database: it runs functions in transactions, over a connection of its driver.

Both drivers execute a statement with parameters by name (`:name` in SQLite, `%(name)s` in PostgreSQL) and return a
cursor of tuples, so a store that is not on a hot path is written once, over statements of the same names.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from strandline.clock import Clock
from strandline.pipeline.sql.migrations import Dialect

T = TypeVar("T")
AnyConnection: TypeAlias = Any


class Database(Protocol):
    """A migrated database."""

    clock: Clock

    @property
    def dialect(self) -> Dialect:
        """Return the SQL dialect."""
        ...

    def describe(self) -> str:
        """Return a name for messages, without secrets."""
        ...

    def array(self, values: Sequence[bytes]) -> Any:  # noqa: ANN401 - what its driver binds
        """Return many values as one parameter: `carray(:name)` in SQLite, `ANY (%(name)s::bytea[])` in PostgreSQL."""
        ...

    def read(self, work: Callable[[AnyConnection], T]) -> T:
        """Run `work` on one snapshot of the database."""
        ...

    def write(self, work: Callable[[AnyConnection], T]) -> T:
        """Run `work`, maybe more than once, and return once its changes are durable; its error rolls them back."""
        ...
