"""Replicate a database, and restore it."""

import sqlite3
from pathlib import Path

from strandline.objects import open_objects
from strandline.replica import Layout, Replicator, restore

application = sqlite3.connect("app.db", isolation_level=None)
application.execute("PRAGMA journal_mode = wal")
application.execute("CREATE TABLE orders (item TEXT)")
application.execute("INSERT INTO orders VALUES ('rope')")
application.close()  # the replicator opens the file with another SQLite library
store = open_objects(f"file://{Path.cwd()}/replica", conditional=True)
with Replicator(Path("app.db"), store) as replicator:
    replicator.wait_durable()
restore(store, Layout(store), Path("restored.db"))
assert sqlite3.connect("restored.db").execute("SELECT item FROM orders").fetchall() == [("rope",)]
