"""A fold in an append log."""

from strandline.fold import open_fold

fold = open_fold("prices.fold")
fold.verify()
fold.close()
