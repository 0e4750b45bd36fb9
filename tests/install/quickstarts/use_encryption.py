"""Objects that are encrypted before they are stored."""

from strandline.objects import KeyRing, open_objects

store = open_objects("memory://", keys=KeyRing({"key": bytes(32)}))
store.put("orders/pointer", b"1")
found = store.get("orders/pointer")
assert found is not None
assert found.body == b"1"
