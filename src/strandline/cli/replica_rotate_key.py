"""`strandline replica rotate-key`: encrypt the files of a replica under the current key."""

import os

from strandline.cli.output import AsJson, emit, progress
from strandline.cli.replica_options import ReplicaAddress, replica_at
from strandline.errors import InvalidInput
from strandline.objects.key_ring import VARIABLE, ring_of


def rotate_key(address: ReplicaAddress, as_json: AsJson = False) -> None:
    """Encrypt every file of a replica that has an older key under the first key of the file of keys.

    STRANDLINE_ENCRYPTION_KEYS names that file. A replicator may run meanwhile, with the same file. When no file is left
    under an older key, that key may be removed. A run that was cut off is repeated.
    """
    from strandline.objects.encrypted import EncryptedObjects, rotate  # noqa: PLC0415 - help needs no extra

    ring = ring_of(os.environ)
    if ring is None:
        hint = f"set {VARIABLE} to the path of a file of keys, the new one first"
        raise InvalidInput(f"there are no keys: {VARIABLE} is not set", hint=hint)
    with replica_at(address, conditional=True) as (store, _):
        assert isinstance(store, EncryptedObjects)  # noqa: S101 - the same variable opened it
        total = sum(1 for _ in store.list())
        with progress("encrypting", total) as advance:
            seen, changed = rotate(store, tell=lambda _, __: advance(1))
    emit({"key": ring.current.name, "objects": seen, "encrypted": changed}, as_json=as_json)
