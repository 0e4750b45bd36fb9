"""The same random operations over two stores: the same answers, the same refusals, the same records at the end."""

import random
from collections.abc import Callable
from typing import Any

from strandline.errors import StrandlineError
from strandline.pipeline.coordination import Coordinator, MemoryRecords, NoneAvailable, RecordStore
from strandline.protocol.leases import Acquired
from strandline.protocol.runs import InitialShard
from strandline.protocol.shards import Cursor, Lease, ParkReason, RunKey, ShardKey, ShardSpec
from strandline.protocol.splits import ResidualPlan
from tests.pipeline.coordination.rivals import RUN, TENANT, TTL_NS

Answer = tuple[str, Any]


class Twins:
    """A store under test beside memory; each step is done to both, and both must say the same."""

    def __init__(self, store: RecordStore, seed: int) -> None:
        self._random = random.Random(seed)
        self._tested = Coordinator(store, lease_ttl_ns=TTL_NS)
        self._model = Coordinator(MemoryRecords(), lease_ttl_ns=TTL_NS)
        self._now = 1_000
        self._op_id = 100
        self._leases: list[Lease] = []

    def run(self, steps: int) -> None:
        """Make a run, do random things to it, and compare what is left."""
        shards = [InitialShard(n, ShardSpec(b"%02d" % (10 * n), b"%02d" % (10 * n + 10))) for n in range(6)]
        self._both(lambda c: c.create_run(self._now, RUN, 1))
        self._both(lambda c: c.register_shards(self._now, RUN, shards, 2))
        for _ in range(steps):
            self._now += self._random.choices([1, TTL_NS // 7, TTL_NS // 2], weights=[12, 2, 1])[0]
            self._step()
        self._compare()

    def _step(self) -> None:
        steps = [self._claim, self._acquire, self._renew, self._checkpoint, self._checkpoint, self._complete]
        steps += [self._park, self._unpark, self._split_replace, self._split_residual, self._end_run]
        self._random.choices(steps, weights=[6, 2, 3, 4, 4, 2, 2, 2, 1, 2, 0.03])[0]()

    def _claim(self) -> None:
        """Claim from the store under test, whose choice it is, and have the model take the same shard."""
        worker = self._random.randrange(3)
        kind, answer = _answer(lambda: self._tested.claim_next_available(self._now, RUN, worker))
        if kind == "returned" and isinstance(answer, Acquired):
            taken = self._model.acquire_and_restore(self._now, answer.lease.key, worker)
            assert taken == answer
            self._leases.append(answer.lease)
            return
        assert (kind, answer) == _answer(lambda: self._model.claim_next_available(self._now, RUN, worker))
        assert kind == "raised" or isinstance(answer, NoneAvailable)

    def _acquire(self) -> None:
        shards = [*self._tested.list_shards(RUN), None]
        chosen = self._random.choice(shards)
        shard = chosen.shard if chosen else 99
        answer = self._both(lambda c: c.acquire_and_restore(self._now, ShardKey(*RUN, shard), 5))
        if isinstance(answer, Acquired):
            self._leases.append(answer.lease)

    def _renew(self) -> None:
        if lease := self._lease():
            answer = self._both(lambda c: c.renew(self._now, lease))
            if isinstance(answer, Lease):
                self._leases.append(answer)

    def _checkpoint(self) -> None:
        if lease := self._lease():
            cursor, op_id = self._cursor(lease), self._op()
            self._both(lambda c: c.checkpoint(self._now, lease, cursor, op_id))

    def _complete(self) -> None:
        if lease := self._lease():
            cursor, op_id = self._cursor(lease), self._op()
            self._both(lambda c: c.complete(self._now, lease, cursor, op_id))

    def _park(self) -> None:
        if lease := self._lease():
            reason, op_id = self._random.choice(list(ParkReason)), self._op()
            self._both(lambda c: c.park_shard(self._now, lease, reason, op_id))

    def _unpark(self) -> None:
        shard, op_id = self._random.choice(self._tested.list_shards(RUN)), self._op()
        self._both(lambda c: c.unpark_shard(self._now, shard.key, op_id))

    def _split_replace(self) -> None:
        if lease := self._lease():
            spec = self._tested.get_shard(lease.key).spec
            cut, op_id = self._cut(spec), self._op()
            parts = [ShardSpec(spec.start, cut), ShardSpec(cut, spec.end)]
            self._both(lambda c: c.split_replace(self._now, lease, parts, op_id))

    def _split_residual(self) -> None:
        if lease := self._lease():
            spec = self._tested.get_shard(lease.key).spec
            cut, op_id = self._cut(spec), self._op()
            plan = ResidualPlan(ShardSpec(spec.start, cut), ShardSpec(cut, spec.end))
            self._both(lambda c: c.split_residual(self._now, lease, plan, op_id))

    def _end_run(self) -> None:
        op_id, how = self._op(), self._random.choice(["complete_run", "complete_run", "fail_run"])
        self._both(lambda c: getattr(c, how)(self._now, RUN, op_id))

    def _both(self, call: Callable[[Coordinator], Any]) -> Any:  # noqa: ANN401 - whatever was asked for
        tested, model = _answer(lambda: call(self._tested)), _answer(lambda: call(self._model))
        assert tested == model
        return tested[1] if tested[0] == "returned" else None

    def _compare(self) -> None:
        both = (self._tested, self._model)
        for after in (None, -1, 0, 3, 2**63 - 1):
            mine, model = (c.list_shards(RUN, after) for c in both)
            assert mine == model
        few, model = (c.list_shards(RUN, None, 3) for c in both)
        assert few == model
        assert self._tested.progress(RUN) == self._model.progress(RUN)
        assert self._tested.list_runs(TENANT) == self._model.list_runs(TENANT)

    def _lease(self) -> Lease | None:
        if not self._leases:
            return None
        recent = self._leases[-8:]
        lease = self._random.choice(recent)
        if self._random.random() < 0.05:
            return lease._replace(worker=lease.worker + 1)
        return lease

    def _cursor(self, lease: Lease) -> Cursor:
        shard = self._tested.get_shard(lease.key)
        key = self._random.choice([shard.cursor.key + b"5", shard.spec.start + b"1", shard.spec.start, b"", b"zz"])
        return Cursor(key, self._random.choice([b"", b"token"]))

    def _cut(self, spec: ShardSpec) -> bytes:
        return self._random.choice([spec.start + b"4", spec.start + b"45", spec.end, b""])

    def _op(self) -> int:
        if self._random.random() < 0.15:  # a repeated operation, or an id used for something else
            return self._random.randrange(101, self._op_id + 2)
        self._op_id += 1
        return self._op_id


def _answer(call: Callable[[], Any]) -> Answer:
    try:
        return "returned", call()
    except StrandlineError as error:
        return "raised", (type(error), str(error))


def many_runs(store: RecordStore) -> None:
    """Runs are listed by signed id, of their tenant only, in pages."""
    coordinator = Coordinator(store)
    ids = [-(2**63), -5, -1, 0, 1, 2**63 - 1]
    for run in reversed(ids):
        coordinator.create_run(1, RunKey(TENANT, run), op_id=1)
        coordinator.register_shards(1, RunKey(TENANT, run), [InitialShard(0, ShardSpec())], op_id=2)
    coordinator.create_run(1, RunKey(b"\xa2" * 32, 3), op_id=1)
    assert [run.run for run in coordinator.list_runs(TENANT)] == ids
    assert [run.run for run in coordinator.list_runs(TENANT, -5, 2)] == [-1, 0]
    assert [run.run for run in coordinator.list_runs(TENANT, 2**63 - 1)] == []
    assert [run.run for run in coordinator.list_runs(b"\xa3" * 32)] == []
