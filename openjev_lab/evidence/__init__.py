"""What a run leaves behind, and the rules that make it evidence: append-only rows, a manifest, hashes.

Takes rows and facts from ``measure``; leaves ``reports/<run>/`` for ``report`` and ``verify``:

    resolved.json     the experiment with every default filled in; another one may not continue the run
    manifest.json     when, what code, which machine, which inputs; written once
    workload.jsonl    every request, as it is sent
    timings.jsonl     one line a request, on disk before the next is sent
    arms.jsonl        what became of each arm; the last line about an arm holds
    timings.parquet   the journal as a table, in ``rows.SCHEMA``
    gates.json        each gate's verdict and reason
    SHA256SUMS        ``sha256sum -c SHA256SUMS`` checks every file above, and the report's
"""

from openjev_lab.evidence.rows import NULL_ARM, ArmRow, TimingRow
from openjev_lab.evidence.run import Evidence, Run, read, write_timings
from openjev_lab.evidence.sums import seal

__all__ = ["NULL_ARM", "ArmRow", "Evidence", "Run", "TimingRow", "read", "seal", "write_timings"]
