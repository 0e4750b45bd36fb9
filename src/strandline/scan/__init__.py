"""Find secrets in bytes, and never keep them.

**Promise.** The same bytes under the same policy give the same findings, on any machine and in any order; no byte
of a secret leaves the engine; what was not looked at is counted, so that "nothing found" means that all was seen.

**How.** An item is scanned frame by frame (`frames`): the item itself, the members of archives in it, and the views
of what is encoded in either. In each frame

    prefilter    one hyperscan database over all rules names windows; a rule's expression is cut to what names it
    confirm      the rule's own expression decides in the window, then keywords, characters, entropy, allowlists and
                 validators; the secret becomes a hash under the tenant's key, and a confidence is given
    selection    rules that others require, one finding for one secret, providers before generic rules
    views        UTF-16, base64, hex and percent escapes, nested, each with the exact way back to the bytes
    archives     zip, tar, gzip, bzip2, xz, zstd, nested, within bounds

**Rules.** `rules` are values; `gitleaks` reads and `gitleaks_format` writes them as the TOML of gitleaks;
`builtin/` is our own set. Expressions are Go's (`syntax`), read into trees over bytes (`nodes`), from which both
matchers are written. A rule's fingerprint covers all that decides its findings, and the policy the limits too
(`RuleSet.policy`).

**Ignoring.** `ignore` leaves findings out and says why: comments, `.gitleaksignore`, `baselines`, `globs`. `validators`
judge a token by its own bytes; `examples` makes the fake secrets that the rules are tested with.

**Bounds.** Work and memory are linear in the bytes, whatever they are. Python's `re` goes back when it fails, so an
expression that can read a text in very many ways is matched by `linear`, which never does and whose steps are
counted. Depths, entries, ratios and sizes are `Limits`. What a bound cuts off is in `Coverage`.

**Trade-offs.** Lengths are counted in bytes where Go counts characters. A keyword stands within a kilobyte of the
match rather than anywhere in the file. A secret in a compressed member leads back to the packed bytes as a whole. A
match is at most 16 KiB long. Two places of one secret in one compressed member are one finding.
"""

from strandline.scan.baselines import Baseline, format_baseline, parse_baseline
from strandline.scan.engine import Engine
from strandline.scan.errors import RegexInvalid, RulesInvalid
from strandline.scan.examples import expand
from strandline.scan.gitleaks import load_builtin, load_rules, parse_rules
from strandline.scan.gitleaks_format import format_set
from strandline.scan.globs import PathGlobs, parse_globs
from strandline.scan.ignore import Cause, Fingerprint, Ignores, Reason, parse_ignore_file
from strandline.scan.limits import Limits
from strandline.scan.prefilter import Saved
from strandline.scan.results import Coverage, Found, ItemResult
from strandline.scan.rules import Allowlist, Required, Rule, RuleSet
from strandline.scan.validators import Verdict, judge

__all__ = [
    "Allowlist",
    "Baseline",
    "Cause",
    "Coverage",
    "Engine",
    "Fingerprint",
    "Found",
    "Ignores",
    "ItemResult",
    "Limits",
    "PathGlobs",
    "Reason",
    "RegexInvalid",
    "Required",
    "Rule",
    "RuleSet",
    "RulesInvalid",
    "Saved",
    "Verdict",
    "expand",
    "format_baseline",
    "format_set",
    "judge",
    "load_builtin",
    "load_rules",
    "parse_baseline",
    "parse_globs",
    "parse_ignore_file",
    "parse_rules",
]
