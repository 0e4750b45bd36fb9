"""A fold in SQLite."""

from strandline.fold import open_fold

fold = open_fold("prices.db")
fold.verify()
fold.close()
