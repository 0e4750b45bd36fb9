"""Regular expressions as rules write them: read into trees over bytes, and matched in linear time.

syntax     Go's expressions (RE2), read
classes    classes of characters, and what UTF-8 makes of them
nodes      the trees, what is known about them, and how they are written for other matchers
patterns   an expression with the matcher that suits it
linear     the matcher that never goes back
"""

from strandline.detect.expressions.classes import Unsupported
from strandline.detect.expressions.linear import Exhausted, Work
from strandline.detect.expressions.nodes import Node
from strandline.detect.expressions.patterns import Pattern
from strandline.detect.expressions.syntax import parse

__all__ = ["Exhausted", "Node", "Pattern", "Unsupported", "Work", "parse"]
