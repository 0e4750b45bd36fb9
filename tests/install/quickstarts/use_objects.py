"""Objects in a folder, with compare-and-swap."""

from pathlib import Path

from strandline.objects import ObjectConflict, open_objects

store = open_objects(Path("bucket").absolute().as_uri(), conditional=True)
etag = store.put("orders/pointer", b"1", if_absent=True)
store.put("orders/pointer", b"2", if_match=etag)
try:
    store.put("orders/pointer", b"3", if_absent=True)
except ObjectConflict:
    found = store.get("orders/pointer")
    assert found is not None
    assert found.body == b"2"
else:
    raise AssertionError("a conditional write replaced an object")
