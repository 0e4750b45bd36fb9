"""Tokens: what is published about their formats, and what their own bytes therefore say.

encodings       numbers in a base, bech32, base64
validators      whether a token can be real: checksums and structures
placeholders    values that stand where a secret would
examples        fake tokens, made on demand
"""

from strandline.detect.tokens.examples import expand
from strandline.detect.tokens.placeholders import placeholder_reason
from strandline.detect.tokens.validators import Verdict, judge, validate

__all__ = ["Verdict", "expand", "judge", "placeholder_reason", "validate"]
