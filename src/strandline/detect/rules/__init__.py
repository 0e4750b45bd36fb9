"""Rules, as values and as files.

rule               a rule, an allowlist, a set of rules, and the policy that follows from it
gitleaks           sets read from the TOML of gitleaks
gitleaks_format    sets written as such
builtin/           Strandline's own set, a file for each field
"""

from strandline.detect.rules.gitleaks import load_builtin, load_rules, parse_rules
from strandline.detect.rules.gitleaks_format import format_set
from strandline.detect.rules.rule import Allowlist, Required, Rule, RuleSet

__all__ = ["Allowlist", "Required", "Rule", "RuleSet", "format_set", "load_builtin", "load_rules", "parse_rules"]
