"""Views: decoded parts of a buffer, mapped back to its bytes.

decoders    base64, hex and percent escapes, and the list of a buffer's views
utf16       UTF-16, whole texts and texts within other bytes
"""

from strandline.detect.views.decoders import DecodeBudget, View, views
from strandline.detect.views.utf16 import utf16_views

__all__ = ["DecodeBudget", "View", "utf16_views", "views"]
