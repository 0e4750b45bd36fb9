"""A journal: append, read, know what is durable."""

from strandline.journal import Journal

with Journal.open("events") as journal:
    journal.append([b"tide in", b"tide out"], keys=[b"sea", b"sea"])
    assert [value for batch in journal.scan(0) for value in batch.to_arrow()["value"].to_pylist()] == [
        b"tide in",
        b"tide out",
    ]
    assert journal.durable_offset == 2
