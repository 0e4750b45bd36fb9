"""Records of compactions: the pages that are in a table by now, and the data files that were replaced.

    compaction/<random>.json    {"pages": [keys], "replaced": [keys]}

Invariant: a record is written after the commits that it is about, and deleted after the objects that it names.
"""

import json
from collections.abc import Container

from strandline.errors import Damaged
from strandline.objects import ObjectStore
from strandline.pipeline.lake.layout import COMPACTION

Record = dict[str, list[str]]


def read_records(store: ObjectStore, known: Container[str] = ()) -> dict[str, Record]:
    """Return the records of a lake by their keys, but for those that are known already."""
    found: dict[str, Record] = {}
    for info in store.list(COMPACTION):
        if info.key in known or not info.key.endswith(".json"):
            continue
        body = store.get(info.key)
        if body is not None:
            found[info.key] = parse_record(body.body, f"{store.address}: {info.key}")
    return found


def format_record(pages: list[str], replaced: list[str]) -> bytes:
    """Return a record as its object."""
    return json.dumps({"pages": pages, "replaced": replaced}).encode()


def parse_record(data: bytes, where: str) -> Record:
    """Return a record from its object."""
    try:
        record = json.loads(data)
        return {"pages": list(record["pages"]), "replaced": list(record["replaced"])}
    except (ValueError, KeyError, TypeError) as error:
        safe = "delete it: its pages are folded again"
        raise Damaged(where, "it is no record of a compaction", safe=safe) from error
