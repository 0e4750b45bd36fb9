"""Errors of replicas, in the tree of `strandline.errors`.

Damaged
└── LtxDamaged           an LTX file is not whole, or not one
"""

from strandline.errors import Damaged


class LtxDamaged(Damaged):
    """An LTX file is not whole, or not one; nothing of it was used."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(path, problem, safe="restore to a transaction before it, or from another replica")
