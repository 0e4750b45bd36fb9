"""Find secrets in bytes, and never keep them.

**Promise.** The same bytes under the same policy give the same findings, on any machine and in any order; no byte
of a secret leaves the engine; what was not looked at is counted, so that "nothing found" means that all was seen.

**How.** The `engine` scans an item frame by frame (`frames`): the item itself, the members of archives in it, and the
views of what is encoded in either. In each frame

    matching    one hyperscan database over all rules names windows; in a window the rule's own expression decides,
                then keywords, characters, entropy, allowlists and validators; the secret becomes a hash under the
                tenant's key, a confidence is given, and of hits at one place the rule that knows best speaks
    views       UTF-16, base64, hex and percent escapes, nested, each with the exact way back to the bytes
    archives    zip, tar, gzip, bzip2, xz, zstd, nested, within bounds

Very many small values (cells of a table, records of a journal) are scanned together (`Engine.scan_many`), with the
same results; of many items, one look at all of them tells which need a scan (`Engine.suspects`).

**Rules.** `rules` are values, read from and written as the TOML of gitleaks; our own set is among them. Their
`expressions` are Go's, read into trees over bytes, from which both matchers are written. A rule's fingerprint covers
all that decides its findings, and the policy the limits too (`RuleSet.policy`). `tokens` knows formats: what a token's
own bytes say about it, and how to make fake ones for tests.

**Bounds.** Work and memory are linear in the bytes, whatever they are. Python's `re` goes back when it fails, so an
expression that can read a text in very many ways is matched by a slower matcher, which never does and whose steps are
counted. Depths, entries, ratios and sizes are `Limits`. What a bound cuts off is in `Coverage`.

**Trade-offs.** Lengths are counted in bytes where Go counts characters. A keyword stands within a kilobyte of the
match rather than anywhere in the file. A secret in a compressed member leads back to the packed bytes as a whole. A
match is at most 16 KiB long. Two places of one secret in one compressed member are one finding.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from strandline.detect.engine import Engine
    from strandline.detect.errors import RegexInvalid, RulesInvalid
    from strandline.detect.limits import Limits
    from strandline.detect.matching.saved import Saved
    from strandline.detect.results import Coverage, Found, ItemResult
    from strandline.detect.rules.gitleaks import load_builtin, load_rules, parse_rules
    from strandline.detect.rules.gitleaks_format import format_set
    from strandline.detect.rules.rule import Allowlist, Required, Rule, RuleSet
    from strandline.detect.tokens.examples import expand
    from strandline.detect.tokens.validators import Verdict, judge

__all__ = [
    "Allowlist",
    "Coverage",
    "Engine",
    "Found",
    "ItemResult",
    "Limits",
    "RegexInvalid",
    "Required",
    "Rule",
    "RuleSet",
    "RulesInvalid",
    "Saved",
    "Verdict",
    "expand",
    "format_set",
    "judge",
    "load_builtin",
    "load_rules",
    "parse_rules",
]


def __getattr__(name: str) -> object:
    """Import a public name at its first use: readers of findings need no engine."""
    from importlib import import_module  # noqa: PLC0415 - that is the point

    homes = {
        "engine": ("Engine",),
        "errors": (
            "RegexInvalid",
            "RulesInvalid",
        ),
        "limits": ("Limits",),
        "matching.saved": ("Saved",),
        "results": (
            "Coverage",
            "Found",
            "ItemResult",
        ),
        "rules.gitleaks": (
            "load_builtin",
            "load_rules",
            "parse_rules",
        ),
        "rules.gitleaks_format": ("format_set",),
        "rules.rule": (
            "Allowlist",
            "Required",
            "Rule",
            "RuleSet",
        ),
        "tokens.examples": ("expand",),
        "tokens.validators": (
            "Verdict",
            "judge",
        ),
    }
    for home, names in homes.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
