"""Compare-and-swap over requests that go astray: nothing that was acknowledged is lost, and nothing is done twice."""

from collections import Counter
from random import Random

import pytest

from strandline.objects import Object, ObjectConflict, Retries, RetryingObjects, StoreUnavailable, WriteUnknown
from strandline.sim import SimObjects

SEEDS = range(300)


def count(seed: int, clients: int = 3, steps: int = 40) -> tuple[list[int], int, Counter[str]]:
    """Let clients add one to a counter, their reads and writes mixed; return what each was told, and the counter."""
    sim, random = SimObjects(seed), Random(seed)
    store = RetryingObjects(sim, Retries(attempts=3), sleep=lambda _: None)
    seen: list[Object | None] = [None] * clients
    told = []
    for step in range(steps):
        client = random.randrange(clients)
        try:
            if random.random() < 0.5:
                seen[client] = store.get("counter")
                continue
            found = seen[client]
            number = int(found.body[:6]) + 1 if found else 1
            body = f"{number:06d}".encode() + b" by %d at %d" % (client, step)
            if found is None:
                store.put("counter", body, if_absent=True)
            else:
                store.put("counter", body, if_match=found.info.etag)
        except (ObjectConflict, StoreUnavailable, WriteUnknown):
            continue
        told.append(number)
    sim.close()
    last = sim.store._objects.get("counter")  # noqa: SLF001 - it is closed
    return told, int(last.body[:6]) if last else 0, Counter(sim.fates)


def test_no_two_writes_that_expect_the_same_object_are_acknowledged() -> None:
    fates: Counter[str] = Counter()
    for seed in SEEDS:
        told, last, seen = count(seed)
        assert len(set(told)) == len(told), f"seed {seed}: a number was given to two"
        assert told == sorted(told), f"seed {seed}: a number came after a later one"
        assert not told or max(told) <= last, f"seed {seed}: an acknowledged write is gone"
        fates += seen
    assert set(fates) == {"done", "refused", "unanswered", "lost", "late", "repeated"}


def test_without_the_nonce_another_write_is_taken_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def whatever_is_there(store: RetryingObjects, key: str, _: str, error: Exception) -> str:
        info = store.head(key)
        if info is None:
            raise error
        return info.etag

    monkeypatch.setattr(RetryingObjects, "_own_write", whatever_is_there)
    assert any(len(set(told)) < len(told) or told != sorted(told) for told, _, _ in map(count, SEEDS))
