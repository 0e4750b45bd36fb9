"""Tokens: what is published about their formats, and what their own bytes therefore say.

encodings       numbers in a base, bech32, base64
validators      whether a token can be real: checksums and structures
placeholders    values that stand where a secret would
examples        fake tokens, made on demand
"""

from strandline.scan.tokens.examples import expand
from strandline.scan.tokens.placeholders import placeholder_reason
from strandline.scan.tokens.validators import Verdict, judge, validate

__all__ = ["Verdict", "expand", "judge", "placeholder_reason", "validate"]
