"""The scope of a fold: which keys of a bucket it holds.

Invariants: two scopes are equal, and have the same digest, exactly if they name the same keys by prefixes: order,
repetition, and prefixes below another one do not matter. What a cursor says of a scope is the scope itself, or only its
digest (`StoredScope`); a digest can tell whether two scopes are equal, and no more.
"""

from dataclasses import dataclass
from functools import cached_property

from blake3 import blake3

from strandline.kv import KvWatcher, Watch, WatchCursor, validate_prefix
from strandline.kv.errors import InvalidKey

DIGEST_BYTES = 8
UNKNOWN = bytes(DIGEST_BYTES)
"""The identity of a bucket that has none, and the scope of a fold that never said."""


@dataclass(frozen=True)
class Scope:
    """Keys below some prefixes; `Scope()` is all of them. A prefix is empty or ends with a dot."""

    prefixes: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        if not self.prefixes:
            raise InvalidKey("", "is not among no prefixes at all")
        least: list[str] = []
        for prefix in sorted(map(validate_prefix, self.prefixes)):
            if not (least and prefix.startswith(least[-1])):
                least.append(prefix)
        object.__setattr__(self, "prefixes", tuple(least))

    @staticmethod
    def of(*prefixes: str) -> "Scope":
        """Return the scope of some prefixes; of none, all keys."""
        return Scope(prefixes or ("",))

    @property
    def is_all(self) -> bool:
        """Tell whether no key is left out."""
        return self.prefixes == ("",)

    @cached_property
    def starts(self) -> tuple[bytes, ...]:
        """Return the prefixes as the keys of a store begin."""
        return tuple(prefix.encode() for prefix in self.prefixes)

    @cached_property
    def digest(self) -> bytes:
        """Return eight bytes that stand for this scope in a cursor; never those of "unknown"."""
        return blake3("\n".join(self.prefixes).encode(), derive_key_context="strandline fold scope").digest(
            DIGEST_BYTES
        )

    def has(self, key: bytes) -> bool:
        """Tell whether a key of a store is within the scope."""
        return key.startswith(self.starts)

    def covers(self, other: "Scope") -> bool:
        """Tell whether every key of another scope is one of this."""
        return all(prefix.startswith(self.prefixes) for prefix in other.prefixes)

    def is_stored_as(self, stored: "StoredScope") -> bool:
        """Tell whether a cursor says this scope; a cursor that says none agrees with all."""
        return stored in (UNKNOWN, self, self.digest)

    def is_covered_by(self, stored: "StoredScope") -> bool:
        """Tell whether a fold with this in its cursor holds every key of this scope, as far as the cursor can tell."""
        if isinstance(stored, Scope):
            return stored.covers(self)
        return stored in (UNKNOWN, self.digest, ALL.digest)

    def __str__(self) -> str:
        return "all keys" if self.is_all else " ".join(f"{prefix}*" for prefix in self.prefixes)


ALL = Scope()
StoredScope = Scope | bytes
"""A scope as a cursor has it: itself, or its digest; `UNKNOWN` where the fold never said."""


async def start_watch(watcher: KvWatcher, scope: Scope, cursor: WatchCursor) -> Watch:
    """Watch a scope after a cursor; with `NO_CURSOR`, its state first."""
    if scope.is_all:
        return await (watcher.watch_all_from(cursor) if cursor else watcher.watch_all())
    if len(scope.prefixes) == 1:
        (prefix,) = scope.prefixes
        return await (watcher.watch_prefix_from(prefix, cursor) if cursor else watcher.watch_prefix(prefix))
    return await (
        watcher.watch_prefixes_from(scope.prefixes, cursor) if cursor else watcher.watch_prefixes(scope.prefixes)
    )
