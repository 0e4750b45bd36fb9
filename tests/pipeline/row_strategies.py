"""Strategies that draw rows which collide often."""

from hypothesis import strategies as st

from strandline.pipeline.findings import ObservationRecord
from strandline.pipeline.ledger import DoneStatus, LedgerRecord
from tests.pipeline.rows import POLICY, TENANT, found, ovid

same = st.just(0)
small = st.integers(0, 2)
codes = st.sampled_from(["A", "B", "a b", "HTTP_403"])


@st.composite
def ledger_rows(draw: st.DrawFn, numbers: st.SearchStrategy[int] = same) -> LedgerRecord:
    """Draw a valid row; small numbers, so that ties are frequent."""
    status = draw(st.sampled_from(DoneStatus))
    gaps = draw(st.tuples(small, small, small))
    findings = draw(small)
    code: str | None = None
    match status:
        case DoneStatus.SCANNED_CLEAN:
            gaps, findings = (0, 0, 0), 0
        case DoneStatus.SCANNED_PARTIAL:
            gaps, findings = (max(gaps[0], 1), *gaps[1:]), 0
        case DoneStatus.SCANNED_WITH_FINDINGS:
            findings = max(findings, 1)
        case _:
            code = draw(codes)
    started = draw(small)
    return LedgerRecord(
        TENANT,
        POLICY,
        ovid(draw(numbers)),
        False,
        status,
        draw(small),
        findings,
        *gaps,
        draw(st.integers(-1, 1)),
        draw(st.integers(-1, 1)),
        draw(small),
        started,
        started + draw(small),
        code,
    )


@st.composite
def observation_rows(draw: st.DrawFn) -> ObservationRecord:
    """Draw an observation of one occurrence; small numbers, so that ties are frequent."""
    _, _, row = found(1)
    seen_at = draw(small)
    display = draw(st.sampled_from([None, "a", "b", "é"]))
    url = None if display is None else draw(st.sampled_from([None, "u", "v"]))
    who = draw(st.integers(-1, 1)), draw(st.integers(-1, 1)), draw(small)
    return ObservationRecord(*row[:5], *who, seen_at, None if display is None else seen_at, display, url)
