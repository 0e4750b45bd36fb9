"""Opening all stores by an address."""

from pathlib import Path

import pytest

from strandline.errors import Closed, FormatError, InvalidInput
from strandline.pipeline.identity import PolicyHash
from strandline.pipeline.scope import WriteContext
from strandline.pipeline.state import Delete, Put
from strandline.pipeline.stores import open_stores
from strandline.protocol import InitialShard, RunKey, ShardSpec
from strandline.protocol.errors import StaleFence
from strandline.protocol.shards import ShardKey
from tests.pipeline.rows import TENANT
from tests.servers_etcd import EtcdServer

RUN = RunKey(TENANT, 7)


def test_runs_can_be_kept_in_etcd_and_closing_lets_go_of_it(
    tmp_path: Path, etcd_server: EtcdServer, etcd_prefix: str
) -> None:
    address = f"etcd://{etcd_server.endpoint}{etcd_prefix}"
    with open_stores(str(tmp_path / "p.db"), coordination=address, migrate=True) as stores:
        stores.coordinator.create_run(1, RUN, 1)
        stores.coordinator.register_shards(1, RUN, [InitialShard(1, ShardSpec(b"a", b"z"))], 2)
        assert stores.coordinator.progress(RUN).active == 1
        client = stores.etcd
    with open_stores(str(tmp_path / "p.db"), coordination=address) as again:
        assert again.coordinator.progress(RUN).active == 1
    with open_stores(str(tmp_path / "p.db")) as elsewhere:
        assert elsewhere.coordinator.list_runs(TENANT) == []
    assert client is not None
    with pytest.raises(Closed):
        client.get(b"/k")


def test_with_runs_in_etcd_a_zombie_does_not_replace_the_state_of_its_successor(
    tmp_path: Path, etcd_server: EtcdServer, etcd_prefix: str
) -> None:
    """Its lease ended while it slept, another worker took the shard and set a watermark; then it wakes up."""
    address = f"etcd://{etcd_server.endpoint}{etcd_prefix}"
    policy = PolicyHash(bytes(32))
    with open_stores(str(tmp_path / "p.db"), coordination=address, lease_ttl_ns=1000, migrate=True) as stores:
        stores.coordinator.create_run(1, RUN, 1)
        stores.coordinator.register_shards(1, RUN, [InitialShard(1, ShardSpec(b"a", b"z"))], 2)
        writers = []
        for now, worker in ((10, 1), (10_000, 2)):
            lease = stores.coordinator.acquire_and_restore(now, ShardKey(*RUN, 1), worker).lease
            writers.append(WriteContext(TENANT, policy, lease.run, lease.shard, lease.fence))
        zombie, successor = writers
        assert zombie.fence < successor.fence
        stores.state.apply_batch(TENANT, [Put(b"watermark", b"1")], writer=zombie)
        stores.state.apply_batch(TENANT, [Put(b"watermark", b"2")], writer=successor)
        for operation in (Put(b"watermark", b"1"), Delete(b"watermark")):
            with pytest.raises(StaleFence):
                stores.state.apply_batch(TENANT, [operation], writer=zombie)
        assert stores.state.multi_get(TENANT, [b"watermark"]) == [b"2"]


@pytest.mark.parametrize("address", ["etcd://", "http://127.0.0.1:2379", "etcd://bob:hunter2@127.0.0.1:2379"])
def test_an_address_that_does_not_coordinate_is_refused_unseen(tmp_path: Path, address: str) -> None:
    with pytest.raises(InvalidInput, match="etcd") as refused:
        open_stores(str(tmp_path / "p.db"), coordination=address, migrate=True)
    assert "hunter2" not in f"{refused.value}{refused.value.hint}"


def test_tables_are_made_only_when_asked(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="holds no pipeline"):
        open_stores(str(tmp_path / "p.db"))
    assert not (tmp_path / "p.db").exists()
    open_stores(str(tmp_path / "p.db"), migrate=True).close()
    open_stores(f"sqlite:{tmp_path / 'p.db'}").close()
