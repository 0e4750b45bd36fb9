"""What the pages of a site share."""

from dataclasses import dataclass, field

from strandline.version import __version__
from strandline.web.access import Access
from strandline.web.live import LiveFeed
from strandline.web.parts.collection import Parts

_UNDO_MAX = 100


@dataclass
class Site:
    """What the pages are about, and who may see them."""

    access: Access
    parts: Parts
    who: str = "web"
    live: LiveFeed = field(default_factory=LiveFeed)
    version: str = __version__
    undo: dict[str, list[bytes]] = field(default_factory=dict)
    """The findings of the latest decisions, by a name that the page has."""

    def remember(self, key: str, findings: list[bytes]) -> None:
        """Keep which findings a decision was about, so that it can be undone as a whole."""
        self.undo[key] = findings
        while len(self.undo) > _UNDO_MAX:
            del self.undo[next(iter(self.undo))]
