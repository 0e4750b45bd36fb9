"""Rules, a key, and the engine of small tests; the secrets are made here and mean nothing."""

from collections.abc import Iterable
from functools import cache

from strandline.detect.engine import Engine
from strandline.detect.limits import Limits
from strandline.detect.results import Found, ItemResult
from strandline.detect.rules.gitleaks import parse_rules
from strandline.detect.rules.rule import Rule, RuleSet
from strandline.detect.tokens.examples import expand
from strandline.pipeline.identity import SecretHash, TenantSecretKey, norm_hash, secret_hash

KEY = TenantSecretKey(b"k" * 32)
TOKEN = Rule("token", r"tok_([a-z0-9]{16})", tags=("provider:test",))


@cache
def engine(*rules: Rule, limits: Limits | None = None) -> Engine:
    """Return an engine of some rules, or of one that finds `tok_` and sixteen characters; tests share it."""
    return Engine(RuleSet(rules or (TOKEN,)), limits, key=KEY)


@cache
def engine_of(toml: str, limits: Limits | None = None) -> Engine:
    """Return the engine of a rules file; tests share it."""
    return Engine(parse_rules(toml), limits, key=KEY)


def hashed(secret: bytes) -> SecretHash:
    """Return what stands for a secret."""
    return secret_hash(KEY, norm_hash(secret))


def spans(result: ItemResult) -> list[tuple[str, int, int]]:
    """Return the rules and the spans of some findings."""
    return [(found.rule_id, found.start, found.end) for found in result.findings]


def only(result: ItemResult) -> Found:
    """Return the one finding."""
    (found,) = result.findings
    return found


def rule_examples(rule_id: str, texts: Iterable[str]) -> list[str]:
    """Return a rule's examples filled in; each has a seed of its own."""
    return [expand(text, f"{rule_id}/{position}") for position, text in enumerate(texts)]
