"""Nodes: clients that know the address of a replica find the leader and its followers, and no stale ones."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError, InvalidInput
from strandline.lease import Claimant, ObjectLeaseStore
from strandline.objects import MemoryObjects, ObjectInfo, open_objects
from strandline.replica import Node, NodeRecord, discover, register, unregister
from strandline.replica.nodes import LEASE_KEY, Address, format_node, node_key, parse_address, parse_node


def led(store: MemoryObjects, name: str = "a") -> Claimant:
    """Have a node take the lease."""
    claimant = Claimant(ObjectLeaseStore(store, LEASE_KEY), name, address=f"http://{name}")
    claimant.claim()
    return claimant


def session_of(store: MemoryObjects) -> str:
    """Return the session that leads."""
    leader = discover(store).leader
    assert leader is not None
    return leader.session


def test_a_replica_without_nodes_has_none() -> None:
    found = discover(MemoryObjects())
    assert (found.leader, list(found.followers), found.readers()) == (None, [], [])


def test_an_address_is_enough(tmp_path: Path) -> None:
    address = (tmp_path / "a replica").as_uri()
    claimant = Claimant(ObjectLeaseStore(open_objects(address), LEASE_KEY), "a", address="http://a")
    claimant.claim()
    for written in (address, f"{address}/"):
        assert discover(written).readers() == ["http://a"]
    assert discover((tmp_path / "nothing").as_uri()).readers() == []
    assert not (tmp_path / "nothing").exists()


def test_followers_are_preferred_for_reads() -> None:
    store = MemoryObjects()
    led(store)
    found = discover(store)
    assert found.leader is not None
    assert (found.leader.name, found.leader.epoch, found.readers()) == ("a", 1, ["http://a"])
    for name in ("c", "b"):
        register(store, NodeRecord(name, f"http://{name}", found.leader.session, 7))
    assert discover(store).readers() == ["http://b", "http://c"]
    unregister(store, "b")
    assert discover(store).readers() == ["http://c"]


def test_followers_of_an_older_session_do_not_count() -> None:
    store = MemoryObjects()
    first = led(store)
    register(store, NodeRecord("b", "http://b", session_of(store), 7))
    first.release()
    assert (discover(store).leader, list(discover(store).followers)) == (None, [])
    led(store, "c")
    assert list(discover(store).followers) == []
    register(store, NodeRecord("b", "http://b", session_of(store), 8))
    assert [node.txid for node in discover(store).followers] == [8]


def test_followers_that_show_no_sign_of_life_do_not_count() -> None:
    class Aged(MemoryObjects):
        def list(self, prefix: str = "", *, start_after: str = ""):  # type: ignore[no-untyped-def]  # noqa: ANN202
            return map(self._aged, super().list(prefix, start_after=start_after))

        @staticmethod
        def _aged(info: ObjectInfo) -> ObjectInfo:
            return replace(info, modified=info.modified - timedelta(seconds=3600 if "old" in info.key else 0))

    store = Aged()
    led(store)
    for name in ("old", "young"):
        register(store, NodeRecord(name, f"http://{name}", session_of(store), 7))
    assert discover(store).readers() == ["http://young"]
    unregister(store, "young")
    assert discover(store).readers() == ["http://a"], "the lease is a sign of life that the old one is measured by"


def test_a_registration_that_cannot_be_read_hides_no_other_node() -> None:
    store = MemoryObjects()
    led(store)
    register(store, NodeRecord("b", "http://b", session_of(store), 7))
    store.put(node_key("later"), b'{"format": 2, "place": "http://later"}')
    found = discover(store)
    assert found.leader is not None
    assert (found.leader.address, found.readers()) == ("http://a", ["http://b"])
    assert ["later.json" in error for error in found.errors] == [True]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("10.0.0.1:80", Address("10.0.0.1", 80, False)),
        ("http://node-1:8000/", Address("node-1", 8000, False)),
        ("https://node", Address("node", 443, True)),
        ("http://[::1]:8000/", Address("::1", 8000, False)),
    ],
)
def test_addresses_of_nodes(text: str, found: Address) -> None:
    assert parse_address(text) == found
    assert parse_address(found.authority)[:2] == found[:2]


@pytest.mark.parametrize(
    "text", ["", "http://", "ftp://node", "http://node/path", "http://node:x", "http://u@node:1", "::1"]
)
def test_other_addresses_are_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="address of a node"):
        parse_address(text)
    if text:
        with pytest.raises(InvalidInput, match="address of a node"):
            Node(Path("a.db"), MemoryObjects(), "a", address=text)


@given(st.builds(NodeRecord, st.just("a"), st.text(), st.text(), st.integers(0, 2**63)))
def test_any_record_is_read_back(record: NodeRecord) -> None:
    assert parse_node(format_node(record), "x") == record


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"format": 2}', b"\xff"])
def test_what_is_no_registration_is_refused(body: bytes) -> None:
    with pytest.raises(FormatError):
        parse_node(body, "nodes/x.json")


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "a b", "x" * 64, "é"])
def test_names_that_cannot_be_keys_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot name a node"):
        node_key(name)
