"""Whose replica a place holds: the identity of the database, written when the replica is begun.

    strandline.json    {"format": 1, "lineage": "<32 hex digits>"}

Invariants: a database is given its identity once, in a row of its own (`capture.TABLE`), so that every copy of it has
the same one; a place keeps the identity that it was begun with. No other database is ever shipped there.
"""

import json
from contextlib import suppress

from strandline.errors import FormatError
from strandline.objects import ObjectConflict, ObjectStore
from strandline.replica.errors import ReplicaForeign

KEY = "strandline.json"
_FORMAT = 1


def format_lineage(lineage: str) -> bytes:
    """Return an identity as the content of its object."""
    return (json.dumps({"format": _FORMAT, "lineage": lineage}) + "\n").encode()


def parse_lineage(body: bytes, key: str) -> str:
    """Return what `format_lineage` wrote."""
    try:
        fields = json.loads(body)
        if fields["format"] != _FORMAT:
            raise FormatError(key, f"format {fields['format']} is of a later Strandline")
        return str(fields["lineage"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(key, "it does not say whose replica this is") from error


def check_lineage(store: ObjectStore, lineage: str, *, is_empty: bool) -> None:
    """Refuse a place that holds another database; one that holds nothing becomes this database's."""
    if is_empty:
        with suppress(ObjectConflict):  # it has an identity, or another replicator begins at the same moment
            store.put(KEY, format_lineage(lineage), if_absent=True)
    found = find_lineage(store)
    if found is None:
        raise ReplicaForeign(store.address, "it holds a replica that Strandline did not begin")
    if found != lineage:
        raise ReplicaForeign(store.address, "it holds the replica of another database")


def find_lineage(store: ObjectStore) -> str | None:
    """Return the identity of the database whose replica a place holds; None where it does not say."""
    found = store.get(KEY)
    return None if found is None else parse_lineage(found.body, KEY)
