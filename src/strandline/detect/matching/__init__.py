"""Matching: from a buffer to the secrets in it, by the word of the rules.

databases     hyperscan databases
prefilter     one database over all rules names the windows worth a closer look
saved         what is kept of both for another process
confirm       a rule's own expression and conditions decide in a window
allowed       allowlists and comments, which say that a match is none
confidence    how much speaks for a match
selection     which of the hits in a buffer count
"""

from strandline.detect.matching.confirm import Hit, Matcher
from strandline.detect.matching.databases import Database
from strandline.detect.matching.prefilter import Prefilter
from strandline.detect.matching.saved import Layout, Reach, Saved
from strandline.detect.matching.selection import selected

__all__ = ["Database", "Hit", "Layout", "Matcher", "Prefilter", "Reach", "Saved", "selected"]
