"""The SQL stores keep every promise of the pipeline's stores."""

import pytest

from strandline.testing.persistence import PERSISTENCE_CHECKS
from tests.pipeline.sql.stores import AnyDatabase, stores_over


@pytest.mark.parametrize("name", PERSISTENCE_CHECKS)
def test_the_stores_keep_the_contract(name: str, database: AnyDatabase) -> None:
    PERSISTENCE_CHECKS[name](stores_over(database))
