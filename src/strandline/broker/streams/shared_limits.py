"""Limits that the accounts of one server share: room for messages, and atomic batches under way.

Invariants: no stream is created or changed so that reservations by `max_bytes` exceed the server's limits; nothing is
published or copied while the messages of all streams exceed them. The known free room is never more than the real one;
it is counted again when it would not be enough.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from strandline.broker.api.account_limits import AccountUsage, check_account
from strandline.broker.api.config import Storage, StreamConfig
from strandline.broker.api.responses import AccountLimits
from strandline.broker.streams.atomic_batches import AllBatches


@dataclass
class SharedLimits:
    """The limits of a server, -1 for none, and their use by its accounts."""

    max_memory: int = -1
    max_storage: int = -1
    batches: AllBatches = field(default_factory=AllBatches)
    _accounts: list[Callable[[], AccountUsage]] = field(default_factory=list)
    _free: dict[Storage, int] = field(default_factory=lambda: dict.fromkeys(Storage, 0))

    def add(self, used: Callable[[], AccountUsage]) -> None:
        """Count the use of an account."""
        self._accounts.append(used)

    def limit(self, storage: Storage) -> int:
        """Return how many bytes messages may have, -1 for any number."""
        return self.max_memory if storage is Storage.MEMORY else self.max_storage

    def check(self, config: StreamConfig, old: StreamConfig | None = None) -> None:
        """Refuse a stream, new or changed, for which the server has no room."""
        if self.limit(config.storage) >= 0:
            limits = AccountLimits(max_memory=self.max_memory, max_storage=self.max_storage)
            check_account(config, limits, self._used(), old)

    def room(self, storage: Storage, size: int) -> int:
        """Return how many bytes are left before something of a size is stored, exactly if they are not enough."""
        if self.limit(storage) < 0:
            return size
        if self._free[storage] < size:
            self._free[storage] = self.limit(storage) - self._used().bytes[storage]
        free = self._free[storage]
        self._free[storage] = free - size
        return free

    def note(self, storage: Storage, size: int) -> None:
        """Count stored bytes for which room was not requested before."""
        self._free[storage] -= size

    def _used(self) -> AccountUsage:
        everything = [used() for used in self._accounts]
        return AccountUsage(
            sum(used.streams for used in everything),
            {storage: sum(used.bytes[storage] for used in everything) for storage in Storage},
            {storage: sum(used.reserved[storage] for used in everything) for storage in Storage},
        )
