"""Views: what is encoded in a buffer, decoded, with the way back to its bytes.

decoding    base64, hex and percent escapes, and which views a buffer has
utf16       UTF-16, whole texts and texts within other bytes
"""

from strandline.detect.views.decoding import Room, View, views
from strandline.detect.views.utf16 import utf16_views

__all__ = ["Room", "View", "utf16_views", "views"]
