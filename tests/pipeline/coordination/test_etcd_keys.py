"""Names in etcd: each thing has one, and no scan reaches into a neighbour's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import FormatError, InvalidInput
from strandline.pipeline.coordination.etcd_keys import (
    PREFIX,
    Noun,
    active_shards_of,
    check_prefix,
    end_of,
    format_key,
    parse_key,
    shards_of,
)
from strandline.protocol.shards import RunKey, ShardKey

Named = tuple[Noun, RunKey | ShardKey]
TENANTS = st.sampled_from([b"\xaa" * 32, b"\xab" * 32]) | st.binary(min_size=32, max_size=32)
IDS = st.sampled_from([-1, 0, 7]) | st.integers(-(1 << 63), (1 << 63) - 1)
PREFIXES = st.from_regex(r"(?:/[A-Za-z0-9_.-]{1,9}){1,3}", fullmatch=True)
NAMED: st.SearchStrategy[Named] = st.one_of(
    st.tuples(st.sampled_from([Noun.RUN, Noun.ACTIVE_RUN]), st.builds(RunKey, TENANTS, IDS)),
    st.tuples(
        st.sampled_from([Noun.SHARD, Noun.OWNER, Noun.ACTIVE_SHARD]),
        st.builds(ShardKey, TENANTS, IDS, IDS),
    ),
)


@given(prefix=PREFIXES, named=NAMED)
def test_what_is_formatted_is_parsed_back(prefix: str, named: Named) -> None:
    checked = check_prefix(prefix)
    assert parse_key(checked, format_key(checked, *named)) == named


def test_the_layout_is_the_published_one() -> None:
    tenant, prefix = b"\xab" * 32, check_prefix(PREFIX)
    run, shard = RunKey(tenant, 7), ShardKey(tenant, 7, -1)
    name = b"/strandline/v1/tenants/" + b"ab" * 32 + b"/runs/0000000000000007"
    assert format_key(prefix, Noun.RUN, run) == name
    assert format_key(prefix, Noun.SHARD, shard) == name + b"/shards/ffffffffffffffff"
    assert format_key(prefix, Noun.OWNER, shard) == name + b"/shards/ffffffffffffffff/owner"
    assert format_key(prefix, Noun.ACTIVE_SHARD, shard) == name + b"/shards_active/ffffffffffffffff"
    assert format_key(prefix, Noun.ACTIVE_RUN, run) == name.replace(b"/runs/", b"/runs_active/")


@given(tenant=TENANTS, run=IDS, named=NAMED, longer=st.booleans())
def test_a_scan_finds_what_is_below_its_slash_and_nothing_else(
    tenant: bytes, run: int, named: Named, longer: bool
) -> None:
    prefix = check_prefix("/a")
    noun, key = named
    name = format_key(check_prefix("/a/tenants") if longer else prefix, noun, key)
    same_run = (key.tenant, key.run) == (tenant, run) and not longer
    scans = {
        shards_of(prefix, RunKey(tenant, run)): same_run and noun in (Noun.SHARD, Noun.OWNER),
        active_shards_of(prefix, RunKey(tenant, run)): same_run and noun is Noun.ACTIVE_SHARD,
    }
    assert {scan: scan <= name < end_of(scan) for scan in scans} == scans


@pytest.mark.parametrize("prefix", ["", "/", "a", "/a/", "//a", "/a b", "/\0", "/é"])
def test_a_prefix_under_which_keys_could_be_mistaken_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidInput):
        check_prefix(prefix)


@pytest.mark.parametrize(
    "tail",
    [
        b"/runs/",
        b"/runs/7",
        b"/runs/000000000000000G",
        b"/runs/000000000000000A",
        b"/runs/0000000000000007/",
        b"/runs/0000000000000007/owner",
        b"/runs_active/0000000000000007/shards/0000000000000007",
        b"/runs/0000000000000007/shards_active/0000000000000007/owner",
    ],
)
def test_a_name_that_is_not_ours_is_told_without_repeating_it(tail: bytes) -> None:
    prefix = check_prefix(PREFIX)
    with pytest.raises(FormatError) as told:
        parse_key(prefix, prefix + b"/tenants/" + b"ab" * 32 + tail)
    assert "abab" not in str(told.value)
    with pytest.raises(FormatError):
        parse_key(prefix, b"/elsewhere" + tail)
