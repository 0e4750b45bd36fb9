"""A streaming scan in a process of its own that is killed with all its children, in the middle of its second page.

python -m tests.spark.journal_scan.child JOURNAL DATABASE
"""

import os
import sys

from strandline.detect import load_builtin
from strandline.pipeline import commit
from strandline.pipeline.findings import FindingsBatch, FindingsSink
from strandline.pipeline.identity import TenantSecretKey
from strandline.pipeline.receipts import FindingsReceipt
from strandline.scan.request import ScanRequest
from strandline.scan.sources import JournalSource
from strandline.scan.sources.journals import BLOCK_OFFSETS
from strandline.scan.state import tenant_named
from strandline.spark.journal_scan.scan import scan_journal
from strandline.spark.sessions import session
from tests.servers_spark import SETTINGS
from tests.spark.journals.child import ROOT_VARIABLE, kill_all

KEY = TenantSecretKey(b"k" * 32)
LEASE_S = 4.0


def request_for(journal: str, address: str) -> ScanRequest:
    """Return the scan that is killed, and gone on with."""
    source = JournalSource.at(journal)
    return ScanRequest((source,), load_builtin(), tenant_named("t"), KEY, address, lease_ttl_s=LEASE_S, parallelism=2)


def main() -> None:
    """Scan, and die when the findings of the second page are written and nothing else of it is."""
    os.environ[ROOT_VARIABLE] = str(os.getpid())
    write, pages = commit.write_findings, [0]

    def written(batch: FindingsBatch, sink: FindingsSink) -> FindingsReceipt:
        receipt = write(batch, sink)
        pages[0] += 1
        if pages[0] == 2:
            kill_all()
        return receipt

    commit.write_findings = written
    request = request_for(*sys.argv[1:])
    with (
        session(master="local[2,4]", settings=SETTINGS) as spark,
        scan_journal(spark, request, records_per_trigger=BLOCK_OFFSETS) as scan,
    ):
        scan.wait()


if __name__ == "__main__":
    main()
