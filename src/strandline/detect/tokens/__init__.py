"""Token formats, as their providers publish them.

encodings       numbers in a base, bech32, base64
validators      checksums and structures, which tell whether a token can be real
placeholders    values in the place of a secret that are none
examples        fake tokens, generated on demand
"""

from strandline.detect.tokens.examples import expand
from strandline.detect.tokens.placeholders import placeholder_reason
from strandline.detect.tokens.validators import Verdict, judge, validate

__all__ = ["Verdict", "expand", "judge", "placeholder_reason", "validate"]
