"""`strandline findings verify`: ask providers about stored findings, whose secrets are read again from their sources.

Invariant: a source that is not the one that was scanned is not read.
"""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.findings_list import print_findings
from strandline.cli.findings_selection import Selection, selecting
from strandline.cli.output import AsJson, to_json
from strandline.cli.rules_options import RulesFile, chosen_rules
from strandline.cli.scan_sources import Chosen, sources_of
from strandline.cli.verification import print_verified, verified_record, verify_findings
from strandline.cli.verify_options import Again, VerifyHosts
from strandline.detect import Limits
from strandline.errors import StrandlineError
from strandline.extras import require
from strandline.findings.finding_ids import find_ids
from strandline.scan.inventory import Inventory, SourceFacts, read_inventories
from strandline.scan.sources import Source
from strandline.scan.sources.git_repository import HISTORY
from strandline.scan.sources.git_urls import is_git_url
from strandline.scan.state import folder_of_state, open_state
from strandline.scan.worker.engine_cache import engine_for
from strandline.verify import parse_addresses, provider_of
from strandline.verify.item_secrets import ItemSecrets, SecretVersions

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]…", help="Ids of findings, or prefixes of them.")]


@selecting
def verify(
    selection: Selection,
    ids: Ids = None,
    rules: RulesFile = None,
    verify_host: VerifyHosts = None,
    again: Again = False,
    as_json: AsJson = False,
) -> None:
    """Ask the providers of findings whether their secrets are live: one read-only request each.

    The secrets are read again from the files and repositories that were scanned, and sent to their providers. Findings
    are named by id, or chosen as in `list`. A recent answer is taken as it is: of a day, or of 15 minutes if it was
    none.
    """
    require("scan", "hyperscan")
    addresses = parse_addresses(verify_host or ())
    rule_set = chosen_rules(rules)
    with open_state(selection.where, tenant=selection.tenant, key_file=selection.key_file) as state:
        named = {one.hex() for one in find_ids(state, ids)} if ids else None
        report = selection.report()
        chosen = [one for one in report.findings if named is None or one.finding_id in named]
        engine = engine_for(rule_set, Limits(), state.key)
        inventories = read_inventories(state.stores.state, state.tenant)
        opened = _opened(inventories, folder_of_state(selection.where))
        versions = SecretVersions(state)
        secrets = [
            ItemSecrets(state, one, sources, engine, versions) for one, sources in zip(inventories, opened, strict=True)
        ]
        done = verify_findings(state, chosen, secrets, addresses, again=again)
        asked = {one.finding_id for one in chosen if provider_of(one.rule_id) is not None}
    # Read again: the answers are part of it now, and live findings come first.
    fresh = selection.report()
    shown = [one for one in fresh.findings if one.finding_id in asked]
    print_findings(fresh.only(shown), as_json=as_json)
    if as_json:
        print(to_json({"summary": verified_record(done)}))
    else:
        print_verified(done)


def _opened(inventories: list[Inventory], state_folder: Path | None) -> list[dict[int, Source]]:
    """Return the sources of inventories that can be opened again, by their numbers; others are named."""
    known: dict[SourceFacts, Source | None] = {}
    for facts in (facts for inventory in inventories for facts in inventory.sources):
        if facts not in known:
            known[facts] = _source(facts, state_folder)
            if known[facts] is None:
                print(
                    f"note: {facts.name} cannot be opened from here; `strandline scan … --verify` reads it again",
                    file=sys.stderr,
                )
    return [
        {number: source for number, facts in enumerate(one.sources) if (source := known[facts]) is not None}
        for one in inventories
    ]


def _source(facts: SourceFacts, state_folder: Path | None) -> Source | None:
    """Return a source by what an inventory says of it, None if that is not enough."""
    is_path = facts.name.startswith("/") or "://" in facts.name or is_git_url(facts.name)
    place = facts.name if is_path else facts.root
    if not place:  # a name that was given says not where it is; a folder of that name here may be any other
        return None
    chosen = Chosen(
        paths=[place] if facts.tag not in {"table", "journal"} else [],
        tables=[f"parquet:{place}"] if facts.tag == "table" else [],
        journals=[Path(place)] if facts.tag == "journal" else [],
        git=facts.view == HISTORY,
        staged=False,
        since=None,
        excludes=[],
        exclude_from=None,
        name="" if is_path else facts.name,
        size_max=None,
        table_key=None,
    )
    with suppress(StrandlineError):
        (source,) = sources_of(chosen, state_folder)
        return source if source.instance.hex() == facts.instance else None
    return None
