"""`strandline rules show`: one rule in full."""

from difflib import get_close_matches
from typing import Annotated

import typer

from strandline.cli.output import AsJson, Record, emit, emit_rows, to_json
from strandline.cli.rules_options import RulesFile, chosen_rules
from strandline.detect import Allowlist, Rule, RuleSet
from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.verify import provider_of

Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the rule.")]
STOPWORDS_SHOWN = 12


def show(rule: Id, rules: RulesFile = None, as_json: AsJson = False) -> None:
    """Show a rule in full: expression, conditions, allow-lists and examples.

    Examples are templates: `{{…}}` stands for characters that are made up, so that no example is a secret.
    """
    found = _found(chosen_rules(rules), rule)
    if as_json:
        print(to_json({**_record(found), "allowlists": [_list(each) for each in found.allowlists], **_examples(found)}))
        return
    emit({name: _text(value) for name, value in _record(found).items() if value}, as_json=False)
    emit_rows(({name: _text(value) for name, value in _list(each).items()} for each in found.allowlists), as_json=False)
    for name, texts in _examples(found).items():
        for text in texts:
            print(f"{name}: {shown(text)}")


def _found(rules: RuleSet, name: str) -> Rule:
    found = rules.by_id.get(name)
    if found is None:
        near = get_close_matches(name, rules.by_id, 3)
        hint = f"perhaps {', '.join(near)}" if near else "`strandline rules list` has them"
        raise InvalidInput(f"there is no rule {name!r}", hint=hint)
    return found


def _record(rule: Rule) -> Record:
    most = 10 if rule.validator else 5 if rule.entropy else 4
    return {
        "rule": rule.id,
        "what": rule.description,
        "expression": rule.regex or "",
        "secret_group": rule.secret_group,
        "files": rule.path or "",
        "reads": "all of the files of that name" if rule.is_for_named_files else "",
        "keywords": list(rule.keywords),
        "entropy_more_than": rule.entropy,
        "characters": rule.charset or "",
        "validator": rule.validator or "",
        "confidence_at_most": most,
        "requires": [_required(other.rule_id, other.within_lines) for other in rule.required],
        "tags": list(rule.tags),
        "reported": not rule.skip_report,
        **verification_of(rule.id),
    }


def verification_of(rule_id: str) -> Record:
    """Return the request that verification makes for a rule's secrets, its host, and what it sends."""
    provider = provider_of(rule_id)
    if provider is None:
        return {"verified_by": "", "verification_sends": ""}
    return {
        "verified_by": f"{provider.method} {provider.base}{provider.path}",
        "verification_sends": provider.sends,
    }


def _required(rule_id: str, lines: int | None) -> str:
    return rule_id if lines is None else f"{rule_id} within {lines} lines"


def _list(allowlist: Allowlist) -> Record:
    return {
        "allows": allowlist.description,
        "if": "all hold" if allowlist.all_of else "one holds",
        "paths": list(allowlist.paths),
        "expressions": list(allowlist.regexes),
        "on": allowlist.regex_target,
        "stopwords": list(allowlist.stopwords),
        "commits": list(allowlist.commits),
    }


def _examples(rule: Rule) -> dict[str, list[str]]:
    return {"example": list(rule.examples), "no example": list(rule.counterexamples)}


def _text(value: object) -> str:
    if isinstance(value, list):
        more = f", … ({len(value)} in all)" if len(value) > STOPWORDS_SHOWN else ""
        return shown(", ".join(value[:STOPWORDS_SHOWN])) + more
    return shown(str(value))
