"""Policies: named by their content, compared rule by rule."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.pipeline.identity import RulesDigest
from strandline.pipeline.policy import KEYED_V1, UNKEYED, Policy, delta, policy_hash, rule_fingerprint, validate
from strandline.protocol.canonical import Plain
from tests.pipeline.rows import TENANT

RULES: dict[str, Plain] = {
    "aws": {"regex": "AKIA[0-9A-Z]{16}", "entropy": 3.0},
    "slack": {"regex": "xox[bp]-", "keywords": ["xox"]},
}
POLICY = Policy(RULES, tuning={"radius": 256}, decoders=["base64"], engine="1.0")


def test_equal_content_has_an_equal_name_whatever_its_order() -> None:
    turned: dict[str, Plain] = {
        "slack": {"keywords": ["xox"], "regex": "xox[bp]-"},
        "aws": {"entropy": 3.0, "regex": "AKIA[0-9A-Z]{16}"},
    }
    assert Policy(turned, {"radius": 256}, ["base64"], "1.0").hash == POLICY.hash


def test_the_name_is_as_it_always_was() -> None:
    assert POLICY.hash.hex() == "55ccc065433ed02085e5826e24b6999ba5c34883bdba04dada78f0fd4deac375"
    assert rule_fingerprint(["aws", RULES["aws"]]).hex() == POLICY.fingerprints["aws"].hex()


@pytest.mark.parametrize(
    "other",
    [
        replace(POLICY, rules={**RULES, "aws": {"regex": "AKIA[0-9A-Z]{16}", "entropy": 3.1}}),
        replace(POLICY, rules={"aws": RULES["aws"]}),
        replace(POLICY, rules={"aws": RULES["slack"], "slack": RULES["aws"]}),
        replace(POLICY, tuning={"radius": 257}),
        replace(POLICY, decoders=["base64", "url"]),
        replace(POLICY, engine="1.1"),
        replace(POLICY, generation=1),
    ],
    ids=["rule", "fewer", "swapped", "tuning", "decoders", "engine", "generation"],
)
def test_any_change_of_content_changes_the_name(other: Policy) -> None:
    assert other.hash != POLICY.hash


def test_the_mode_and_the_evidence_are_part_of_the_name() -> None:
    digest = RulesDigest(bytes(32))
    assert len({policy_hash(digest, KEYED_V1), policy_hash(digest, UNKEYED), policy_hash(digest, evidence=2)}) == 3


def test_a_delta_names_the_rules_to_scan_with() -> None:
    rules = {"aws": RULES["aws"], "slack": {"regex": "xox[abp]-"}, "npm": {"regex": "npm_"}}
    new = replace(POLICY, rules=rules)
    changed = delta(POLICY.record, new.record)
    assert changed.added == {new.fingerprints["slack"], new.fingerprints["npm"]}
    assert changed.removed == {POLICY.fingerprints["slack"]}
    assert changed.kept == {POLICY.fingerprints["aws"]}
    assert not changed.rescan_all


@pytest.mark.parametrize("field", ["tuning", "decoders", "engine"])
def test_a_change_of_the_frame_asks_for_all_rules(field: str) -> None:
    assert delta(POLICY.record, replace(POLICY, **{field: "other"}).record).rescan_all  # type: ignore[arg-type]


@given(st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(0, 3), min_size=1, max_size=4))
def test_the_delta_to_itself_is_empty(rules: dict[str, int]) -> None:
    record = Policy(rules, None, None, "1").record
    changed = delta(record, record)
    assert not changed.added
    assert not changed.removed
    assert not changed.rescan_all


def test_a_policy_needs_rules() -> None:
    with pytest.raises(InvalidInput, match="finds nothing"):
        Policy({}, None, None, "1")


@pytest.mark.parametrize("name", ["", "x" * 257, "a\0b", "\ud800"])
def test_a_rules_name_that_cannot_be_stored_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="rule's name"):
        Policy({name: None}, None, None, "1")


@pytest.mark.parametrize(
    "fields",
    [
        {"policy": b"short"},
        {"frame_digest": None},
        {"rules": (("a", b"short"),)},
        {"rules": (("", bytes(32)),)},
        {"rules": (("b", bytes(32)), ("a", bytes(32)))},
        {"rules": (("a", bytes(32)), ("a", bytes(32)))},
        {"rules": tuple((f"{number:05}", bytes(32)) for number in range(10_001))},
    ],
)
def test_a_record_that_no_store_could_keep_is_refused(fields: dict[str, object]) -> None:
    validate(TENANT, POLICY.record)
    with pytest.raises(InvalidInput):
        validate(TENANT, POLICY.record._replace(**fields))  # type: ignore[arg-type]
