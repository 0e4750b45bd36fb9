"""Counted requests: each attempt, by operation and outcome, and the bytes of objects."""

import pytest

from strandline.objects import (
    MemoryObjects,
    ObjectConflict,
    RequestCounts,
    Retries,
    RetryingObjects,
    StoreRefused,
    StoreUnavailable,
    WriteUnknown,
)
from strandline.objects.counted import CountedObjects


def counted(counts: RequestCounts) -> dict[str, float]:
    """Return the counts by their labels."""
    return {" ".join(sample.labels.values()): sample.value for metric in counts.metrics() for sample in metric.samples}


def test_requests_and_bytes_are_counted_by_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = RequestCounts()
    store = CountedObjects(MemoryObjects(), counts)
    store.put("a/1", b"12345")
    store.put_stream("a/2", [b"123", b"45"])
    store.get("a/1", stop=3)
    store.get("missing")
    store.head("a/1")
    with pytest.raises(ObjectConflict):
        store.put("a/1", b"x", if_absent=True)
    store.delete("a/2")
    monkeypatch.setattr("strandline.objects.counted.LIST_PAGE_KEYS", 2)
    for number in range(3, 7):
        store.put(f"a/{number}", b"")
    assert len(list(store.list("a/"))) == 5
    assert counted(counts) == {
        "put ok": 5,
        "put conflict": 1,
        "put_stream ok": 1,
        "get ok": 2,
        "head ok": 1,
        "delete ok": 1,
        "list ok": 3,
        "sent": 11,
        "received": 3,
    }


def test_every_attempt_counts() -> None:
    counts, inner = RequestCounts(), MemoryObjects()
    inner.faults.fail("put", StoreUnavailable("memory:", "away"))
    inner.faults.fail("put", StoreRefused("memory:", "no"), nth=3)
    inner.faults.fail("put", WriteUnknown("b", "no answer"), nth=4, after=True)
    store = RetryingObjects(CountedObjects(inner, counts), Retries(3, 0.0, 0.0))
    store.put("a", b"1")
    with pytest.raises(StoreRefused):
        store.put("a", b"2")
    store.put("b", b"3", if_absent=True)
    found = counted(counts)
    assert {name: count for name, count in found.items() if name.startswith("put")} == {
        "put ok": 1,
        "put unavailable": 1,
        "put refused": 1,
        "put unknown": 1,
        "put conflict": 1,
    }
