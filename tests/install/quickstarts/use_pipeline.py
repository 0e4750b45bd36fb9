"""The pipeline's stores in SQLite."""

from strandline.pipeline.stores import open_stores

with open_stores("pipeline.db", migrate=True) as stores:
    assert stores.state is not None
