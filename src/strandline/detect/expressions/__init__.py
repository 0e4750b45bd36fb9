"""Regular expressions of rules: parsed into trees over bytes, and matched in linear time.

syntax     the parser of Go's expressions (RE2)
classes    character classes and their UTF-8 byte sequences
nodes      the trees, their properties, and their text for other matchers
patterns   an expression with the matcher that suits it
linear     the matcher without backtracking
"""

from strandline.detect.expressions.classes import Unsupported
from strandline.detect.expressions.linear import Exhausted, Work
from strandline.detect.expressions.nodes import Node
from strandline.detect.expressions.patterns import Pattern
from strandline.detect.expressions.syntax import parse

__all__ = ["Exhausted", "Node", "Pattern", "Unsupported", "Work", "parse"]
