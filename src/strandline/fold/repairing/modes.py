"""The mode of a fold, decided from what it stores and what its owner wants."""

from strandline.fold.errors import ModeChanged
from strandline.fold.marks import Mark
from strandline.protocol import fold_modes
from strandline.protocol.fold_modes import FoldMode


def decided_mode(mark: Mark, bucket: str, wanted: FoldMode | None, *, asked: bool) -> FoldMode:
    """Return the mode that a fold is kept in; `ModeChanged` if it cannot be the wanted one.

    `asked` is whether the owner asked for a repair, which may make an archive a mirror.
    """
    if not fold_modes.may_change_mode(mark.mode, wanted, asked=asked):
        raise ModeChanged(bucket, mark.mode.name.lower())
    if wanted is not None and wanted is not FoldMode.UNKNOWN:
        return wanted
    return fold_modes.chosen_mode(mark.mode, wanted, seen_evicting=mark.seen_evicting)
