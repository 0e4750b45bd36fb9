"""Identities: the published vectors, the forms for columns, and that nothing shows a secret."""

import pickle
import time

import pyarrow as pa
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.pipeline import identity
from strandline.pipeline.identity import (
    FindingId,
    NormHash,
    ObjectVersionId,
    OccurrenceId,
    PolicyHash,
    RuleFingerprint,
    RulesDigest,
    SecretHash,
    StableItemId,
    TenantId,
    TenantSecretKey,
    VersionKind,
    connector_instance_id,
    finding_id,
    finding_ids,
    norm_hash,
    object_version_id,
    object_version_ids,
    observation_id,
    observation_ids,
    occurrence_id,
    occurrence_ids,
    ovid_hash,
    ovid_hashes,
    secret_hash,
    stable_item_id,
    stable_item_ids,
    tenant_id,
)
from strandline.pipeline.policy import policy_hash

INSTANCE = connector_instance_id(b"github-installation-1")
ITEM = stable_item_id("github", INSTANCE, b"org/repo\0src/main.rs")
VERSION = object_version_id(b"abc123def456")
digests = st.binary(min_size=32, max_size=32)


def many(byte: int) -> bytes:
    return bytes([byte]) * 32


def test_ids_are_those_that_were_published() -> None:
    seen = {
        "instance": INSTANCE,
        "item": ITEM,
        "version": VERSION,
        "ovid": ovid_hash(ITEM, VERSION, VersionKind.STRONG),
        "secret": secret_hash(TenantSecretKey(many(0xBB)), NormHash(many(0xCC))),
        "finding": finding_id(
            TenantId(many(0x11)), StableItemId(many(0x22)), RuleFingerprint(many(0x33)), SecretHash(many(0x44))
        ),
        "occurrence": occurrence_id(FindingId(many(0x55)), ObjectVersionId(many(0x66)), 1024, 42),
        "observation": observation_id(TenantId(many(0x77)), PolicyHash(many(0x88)), OccurrenceId(many(0x99))),
        "policy": policy_hash(RulesDigest(many(0xAA))),
    }
    assert {name: bytes(value).hex() for name, value in seen.items()} == {
        "instance": "ac8d5ef3d400ed9c7943a106e74914ffe14c23dce37e62ee83bb6eaa0a1d11ab",
        "item": "1c69b550547c36c498844740ea1f1c03d9750b34074cd6826a3e19cfc0a57d61",
        "version": "cfae6513765d943a5643f454295c81ff83ffca49387f1b153d69d66250f6de2e",
        "ovid": "fbf938aa5a8599477fac8cc00a8114f998d8e7e2dd5fcd2ba6faf2a791a411b8",
        "secret": "6ba4c79833b05f0e0d205db89babc5fb6b7de227f96268542d67e2f264963cbe",
        "finding": "81ce2885df85e9630d46a02959e93acf8ace8e79016ee9d873c109bb20761fd8",
        "occurrence": "ccebcdede965abcd388e68e2d67d298c782d5302f71adf522446cde99623dc85",
        "observation": "85454a298ecd3a949cb1b9ff040807dacef8fbce52ec5aebfcf6140a3c522820",
        "policy": "29f1e1f8f592a9eccaeb83f7987f636a39d592eb71164e73381e83774cf1f85c",
    }


def test_a_weak_version_makes_another_key_than_a_strong_one() -> None:
    assert ovid_hash(ITEM, VERSION, VersionKind.WEAK) != ovid_hash(ITEM, VERSION, VersionKind.STRONG)


class TestColumns:
    """The form for columns gives what the form for one gives, for lists and for Arrow arrays."""

    @given(st.lists(st.tuples(digests, digests, digests), max_size=8))
    def test_of_findings(self, rows: list[tuple[bytes, bytes, bytes]]) -> None:
        items, rules, secrets = (list(column) for column in zip(*rows, strict=True)) if rows else ([], [], [])
        tenant = TenantId(many(1))
        wanted = [
            finding_id(tenant, StableItemId(item), RuleFingerprint(rule), SecretHash(secret))
            for item, rule, secret in rows
        ]
        assert finding_ids(tenant, items, rules, secrets).to_pylist() == wanted
        arrow = [pa.array(column, pa.binary(32)) for column in (items, rules, secrets)]
        assert finding_ids(tenant, *arrow).to_pylist() == wanted

    @given(st.lists(st.tuples(digests, digests, st.integers(0, 2**63 - 1), st.integers(1, 2**63 - 1)), max_size=8))
    def test_of_occurrences(self, rows: list[tuple[bytes, bytes, int, int]]) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], [], []]
        wanted = [occurrence_id(FindingId(a), ObjectVersionId(b), offset, length) for a, b, offset, length in rows]
        assert occurrence_ids(*columns).to_pylist() == wanted

    @given(st.lists(st.binary(max_size=50), max_size=8))
    def test_of_items_and_versions(self, names: list[bytes]) -> None:
        arrow = pa.array(names, pa.binary())
        assert stable_item_ids("fs", INSTANCE, arrow).to_pylist() == [
            stable_item_id("fs", INSTANCE, name) for name in names
        ]
        assert object_version_ids(names).to_pylist() == [object_version_id(name) for name in names]

    @given(st.lists(digests, max_size=8))
    def test_of_keys_and_observations(self, ids: list[bytes]) -> None:
        tenant, policy = TenantId(many(1)), PolicyHash(many(2))
        assert observation_ids(tenant, policy, ids).to_pylist() == [
            observation_id(tenant, policy, OccurrenceId(one)) for one in ids
        ]
        assert ovid_hashes(ids, ids, VersionKind.WEAK).to_pylist() == [
            ovid_hash(StableItemId(one), ObjectVersionId(one), VersionKind.WEAK) for one in ids
        ]

    def test_of_an_arrow_slice(self) -> None:
        names = pa.array([b"a", b"b", b"c", b"d"])
        assert object_version_ids(names[1:3]).to_pylist() == [object_version_id(b"b"), object_version_id(b"c")]

    def test_of_different_lengths_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match="differ in length"):
            ovid_hashes([many(1)], [many(1), many(2)], VersionKind.STRONG)

    def test_of_ids_of_other_lengths_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match="not 32 bytes"):
            ovid_hashes([many(1)[:31], many(1) + b"x"], [many(1), many(2)], VersionKind.STRONG)

    def test_with_nulls_are_refused(self) -> None:
        with pytest.raises(InvalidInput, match="nulls"):
            object_version_ids(pa.array([b"a", None]))

    @pytest.mark.parametrize("offsets", [[-1], [0.5]])
    def test_of_spans_that_are_none_are_refused(self, offsets: list[int]) -> None:
        with pytest.raises(InvalidInput, match="whole numbers"):
            occurrence_ids([many(1)], [many(2)], offsets, [1])

    def test_of_ten_thousand_take_a_moment(self) -> None:
        ids = [many(1)] * 10_000
        begin = time.process_time()
        assert len(observation_ids(TenantId(many(1)), PolicyHash(many(2)), ids)) == 10_000
        assert time.process_time() - begin < 5


def test_a_secret_is_hidden_differently_for_each_tenant() -> None:
    norm = norm_hash(b"hunter2")
    assert secret_hash(TenantSecretKey(many(1)), norm) != secret_hash(TenantSecretKey(many(2)), norm)


def test_the_bytes_of_a_secret_are_hashed_as_they_were_found() -> None:
    assert norm_hash(b"Hunter2 ") == blake3(b"Hunter2 ").digest()
    assert len({norm_hash(secret) for secret in (b"Hunter2", b"hunter2", b"hunter2 ")}) == 3


@pytest.mark.parametrize("kind", [NormHash, SecretHash, TenantSecretKey])
def test_what_comes_from_a_secret_is_never_shown(kind: type[identity.Secret32]) -> None:
    value = kind(b"0123456789abcdef0123456789abcdef")
    for shown in (repr(value), str(value), f"{value!s}", f"{value!r}", repr([value]), f"{value:>40}"):
        assert "0123" not in shown
        assert value.hex() not in shown
    again = pickle.loads(pickle.dumps(value))  # noqa: S301 - our own bytes
    assert again == value
    assert type(again) is kind


@pytest.mark.parametrize("wrong", [b"", b"x" * 31, b"x" * 33])
def test_a_digest_of_another_length_is_refused_unseen(wrong: bytes) -> None:
    for make in (SecretHash, NormHash, TenantSecretKey, tenant_id):
        with pytest.raises(InvalidInput, match="has 32 bytes") as refused:
            make(wrong)
        assert "x" * 31 not in str(refused.value)


@pytest.mark.parametrize("tag", ["", "ninebytes", "ééééé"])
def test_a_connectors_tag_has_one_to_eight_bytes(tag: str) -> None:
    with pytest.raises(InvalidInput, match="tag"):
        stable_item_id(tag, INSTANCE, b"x")
