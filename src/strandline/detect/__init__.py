"""Find secrets in bytes, and never keep them.

**Promise.** The same bytes under the same policy give the same findings, on any machine and in any order; no byte
of a secret leaves the engine, unless it is asked for one by its hash; the engine counts every part that it did not
scan, so that "nothing found" with full coverage means that all bytes were scanned.

**How.** The `engine` scans an item frame by frame (`frames`): the item itself, the members of its archives, and the
decoded views of both. In each frame

    matching    one hyperscan database over all rules finds candidate windows; in a window the rule's own expression
                decides, then keywords, characters, entropy, allowlists and validators; a confirmed secret becomes
                a hash under the tenant's key with a confidence; of hits at one place the most specific rule wins
    views       UTF-16, base64, hex and percent escapes, cells of tables, nested, each mapped back to the exact bytes
    archives    zip, tar, gzip, bzip2, xz, zstd, nested, within bounds

Very many small values (cells of a table, records of a journal) are scanned together (`Engine.scan_many`), with the
same results; one pass of the prefilter over many items tells which of them need a scan (`Engine.suspects`).
`Engine.explain` is a scan that also says which matches it dismissed, and why (`explanation`). `Engine.reveal` returns
the bytes of secrets whose keyed hashes the caller has (`revealed`): only verification asks for them.

**Rules.** `rules` are values, read from and written as the TOML of gitleaks; Strandline's own set is among them. Their
`expressions` are Go's, parsed into trees over bytes, from which both matchers are built. A rule's fingerprint covers
everything that decides its findings; the policy covers the limits too (`RuleSet.policy`). `tokens` knows token formats:
how to validate a token by its own bytes, and how to make fake ones for tests.

**Bounds.** Work and memory are linear in the bytes, for any bytes. Python's `re` backtracks, so a slower matcher that
never backtracks and counts its steps handles expressions that could read a text in very many ways. Depths, entries,
ratios and sizes are `Limits`. `Coverage` counts the parts that a bound cut off.

**Trade-offs.** Lengths are counted in bytes where Go counts characters. A keyword stands within a kilobyte of the
match rather than anywhere in the file. A secret in a compressed member leads back to the packed bytes as a whole. A
match is at most 16 KiB long. Two places of one secret in one compressed member are one finding.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.detect.engine import Engine
    from strandline.detect.errors import RegexInvalid, RulesInvalid
    from strandline.detect.explanation import Dismissed, Explanation
    from strandline.detect.limits import Limits
    from strandline.detect.matching.saved_engine import SavedEngine
    from strandline.detect.results import Coverage, Found, ItemResult
    from strandline.detect.rules.gitleaks import load_builtin, load_rules, parse_rules
    from strandline.detect.rules.gitleaks_format import format_set
    from strandline.detect.rules.rule import Allowlist, Required, Rule, RuleSet
    from strandline.detect.tokens.examples import expand
    from strandline.detect.tokens.validators import Verdict, judge

__all__ = [
    "Allowlist",
    "Coverage",
    "Dismissed",
    "Engine",
    "Explanation",
    "Found",
    "ItemResult",
    "Limits",
    "RegexInvalid",
    "Required",
    "Rule",
    "RuleSet",
    "RulesInvalid",
    "SavedEngine",
    "Verdict",
    "expand",
    "format_set",
    "judge",
    "load_builtin",
    "load_rules",
    "parse_rules",
]

# Import a public name at its first use; code that reads findings needs no engine.
__getattr__ = _lazy_names(
    __name__,
    {
        "engine": ("Engine",),
        "errors": ("RegexInvalid", "RulesInvalid"),
        "explanation": ("Dismissed", "Explanation"),
        "limits": ("Limits",),
        "matching.saved_engine": ("SavedEngine",),
        "results": ("Coverage", "Found", "ItemResult"),
        "rules.gitleaks": ("load_builtin", "load_rules", "parse_rules"),
        "rules.gitleaks_format": ("format_set",),
        "rules.rule": ("Allowlist", "Required", "Rule", "RuleSet"),
        "tokens.examples": ("expand",),
        "tokens.validators": ("Verdict", "judge"),
    },
)
