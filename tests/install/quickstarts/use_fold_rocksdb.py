"""A fold in RocksDB."""

from strandline.fold import open_fold

fold = open_fold("prices.rocks")
fold.verify()
fold.close()
