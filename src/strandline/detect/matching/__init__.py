"""Matching: the secrets of a buffer, by the rules.

databases     hyperscan databases
prefilter     one database over all rules, which finds candidate windows
named_files   one database over the paths of rules for named files
saved_engine  the compiled form of all of these, for another process
heads         where a match of a rule can begin in a window
matcher       a rule's own expression and conditions, which decide in a window, and the confidence
allowlists    allowlists and comments, which exclude a match
selection     the hits of a buffer that count
"""

from strandline.detect.matching.databases import Database
from strandline.detect.matching.matcher import Hit, Matcher
from strandline.detect.matching.prefilter import Prefilter
from strandline.detect.matching.saved_engine import Layout, Reach, SavedEngine
from strandline.detect.matching.selection import selected

__all__ = ["Database", "Hit", "Layout", "Matcher", "Prefilter", "Reach", "SavedEngine", "selected"]
