"""A journal as a DataFrame."""

from strandline.journal import Journal
from strandline.spark import session

with Journal.open("orders") as journal:
    journal.append([b"first", b"second"], keys=[b"a", b"b"])
with session() as spark:
    assert spark.read.format("strandline").load("orders").count() == 2
