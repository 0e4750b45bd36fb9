"""`strandline rules list`: one row a rule."""

from collections.abc import Iterable
from typing import Annotated

import typer

from strandline.cli.output import AsJson, Record, emit_rows, to_json
from strandline.cli.rules_options import RulesFile, chosen_rules
from strandline.cli.rules_show import verification_of
from strandline.detect import Rule
from strandline.detect.locations import shown

Words = Annotated[
    list[str] | None, typer.Argument(metavar="[WORD]…", help="Only rules whose id or text has all words.")
]


def list_rules(words: Words = None, rules: RulesFile = None, as_json: AsJson = False) -> None:
    """List the rules.

    A rule's file is `any`, unless it looks at files of some names only.
    """
    found = [rule for rule in chosen_rules(rules).rules if _has(rule, words or ())]
    if as_json:
        for rule in found:
            print(to_json({**_row(rule), **verification_of(rule.id)}))
        return
    emit_rows(({**_row(rule), "keywords": ", ".join(rule.keywords)} for rule in found), as_json=False)


def _has(rule: Rule, words: Iterable[str]) -> bool:
    text = f"{rule.id} {rule.description} {' '.join(rule.tags)}".lower()
    return all(word.lower() in text for word in words)


def _row(rule: Rule) -> Record:
    return {
        "rule": shown(rule.id),
        "what": shown(rule.description),
        "files": "any" if rule.path is None else "named",
        "checked_by": rule.validator or ("entropy" if rule.entropy else ""),
        "keywords": list(rule.keywords),
    }
