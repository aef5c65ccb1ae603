"""Gates: limits that the experiment declared, held against a run's rows; and whether the run counts at all.

Takes the evidence of a run; returns a ``Judgement`` and writes it as gates.json. Apart from ``metrics``, which say what
a number is: here is what it is held to, and that a gate which can't be evaluated has failed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from openjev_lab.evidence import NULL_ARM, Evidence
from openjev_lab.evidence.rows import frame
from openjev_lab.measure.experiment import BELOW, Arm, Experiment, Gate
from openjev_lab.measure.metrics import METRICS, CannotTell

if TYPE_CHECKING:
    import polars as pl

DIGITS = 9
"""Significant digits of a recorded value: more would only show in which order a sum was taken."""
ANSWERED = 200


@dataclass(frozen=True, slots=True)
class Judged:
    """One gate on one arm."""

    name: str
    kind: str
    """The metric."""
    arm: str
    base: str | None
    workload: str
    bound: Literal["at_most", "at_least"]
    limit: float
    value: float | None
    """None: it could not be evaluated, and has failed."""
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """A run's verdict: invalid where the run does not count, else missed where a gate is, else passed."""

    verdict: Literal["passed", "missed", "invalid"]
    invalid: tuple[str, ...]
    """Why the run does not count, one sentence each."""
    arms: dict[str, dict[str, Any]]
    """Arm -> verdict (valid, invalid, skipped, failed, pending) and the reasons for any but valid."""
    gates: tuple[Judged, ...]

    def about(self, arm: str) -> tuple[Judged, ...]:
        """The gates on one arm."""
        return tuple(gate for gate in self.gates if gate.arm == arm)

    def document(self) -> dict[str, Any]:
        """What gates.json holds."""
        return {"schema_version": 1, **asdict(self), "invalid": list(self.invalid), "gates": [*map(asdict, self.gates)]}


def judge(evidence: Evidence, sizes: dict[str, int] | None = None) -> Judgement:
    """Judge every gate and every arm. ``sizes``, requests a workload, is taken from the manifest unless given."""
    experiment = Experiment.model_validate(evidence.resolved)
    counts = sizes or {name: told["requests"] for name, told in evidence.manifest["inputs"]["workloads"].items()}
    arms = {arm.name: _arm(evidence, experiment, arm, counts) for arm in experiment.arms}
    faults = [
        f"{name}: {reason}"
        for name, told in arms.items()
        if told["verdict"] not in ("valid", "skipped")
        for reason in told["reasons"]
    ]
    faults += _code_changes(evidence)
    timings = frame(evidence.timings)
    judged = tuple(
        _judged(gate, experiment.arm(name), arms, timings) for gate in experiment.gates for name in gate.arms
    )
    missed = not all(gate.passed for gate in judged)
    verdict: Literal["passed", "missed", "invalid"] = "invalid" if faults else "missed" if missed else "passed"
    return Judgement(verdict, tuple(faults), arms, judged)


def _code_changes(evidence: Evidence) -> list[str]:
    """Why arms can't be compared that were measured, or continued, with different code."""
    used = {(row.arm, row.attempt) for row in evidence.timings if row.measured}
    versions: dict[str, list[str]] = {}
    for row in evidence.history:
        if row.status == "running" and (row.arm, row.attempt) in used:
            versions.setdefault(row.code_sha256[:8], []).append(row.arm)
    if len(versions) < 2:
        return []
    told = "; ".join(f"{code}: {', '.join(dict.fromkeys(names))}" for code, names in versions.items())
    return [f"the code changed during the run ({told})"]


def _arm(evidence: Evidence, experiment: Experiment, arm: Arm, sizes: dict[str, int]) -> dict[str, Any]:
    """Whether an arm's rows count: it was measured, no row is missing, none is an error."""
    last = evidence.arms.get(arm.name)
    if last is None or last.status == "running":
        return {"verdict": "pending", "reasons": ["it was not measured to its end"]}
    if last.status != "measured":
        return {"verdict": last.status, "reasons": [last.reason]}
    own = [row for row in evidence.timings if row.measured and row.arm == arm.name]
    reasons = []
    for workload, requests in sizes.items():
        found = sum(row.workload == workload for row in own)
        wanted = requests * experiment.protocol.passes
        if found != wanted:
            reasons.append(f"{found} of {wanted} measured requests of {workload} are there")
    bad = Counter(row.error or f"HTTP {row.status}" for row in own if row.error or row.status != ANSWERED)
    reasons += [f"{count} measured requests failed: {error}" for error, count in sorted(bad.items())]
    return {"verdict": "invalid" if reasons else "valid", "reasons": reasons}


def _judged(gate: Gate, arm: Arm, arms: dict[str, dict[str, Any]], timings: pl.DataFrame) -> Judged:
    base = arm.base if gate.base == BELOW else gate.base
    bound: Literal["at_most", "at_least"] = "at_most" if gate.at_most is not None else "at_least"
    limit = gate.at_most if gate.at_most is not None else gate.at_least
    assert limit is not None, "the experiment was checked"
    value, reason = _value(gate, arm.name, base, arms, timings)
    passed = value is not None and (value <= limit if bound == "at_most" else value >= limit)
    if value is not None:
        reason = f"{METRICS[gate.metric].says.format(value=value)}; {bound.replace('_', ' ')} {limit:g} was declared"
    against = f" against {base}" if base else ""
    name = f"{gate.metric} of {arm.name}{against} on {gate.workload}"
    return Judged(name, gate.metric, arm.name, base, gate.workload, bound, limit, value, passed, reason)


def _value(
    gate: Gate, arm: str, base: str | None, arms: dict[str, dict[str, Any]], timings: pl.DataFrame
) -> tuple[float | None, str]:
    """(value, "") or (None, why there is none)."""
    for name in filter(None, (arm, base)):
        verdict, reasons = arms[name]["verdict"], arms[name]["reasons"]
        if verdict not in ("valid", "invalid"):
            return None, f"can't be evaluated: {name} was not measured ({verdict}: {reasons[0]})"
    try:
        value = METRICS[gate.metric].value(timings, arm, base, gate.workload)
    except CannotTell as why:
        return None, f"can't be evaluated: {why}"
    return float(f"{value:.{DIGITS}g}"), ""


def table(judgement: Judgement) -> str:
    """The verdict for a terminal: each arm, each missed gate, passed gates of one kind in a line, the sum of it."""
    lines = []
    for name, told in judgement.arms.items():
        lines.append(f"  {told['verdict']:8} {name:16} {'; '.join(told['reasons'])}".rstrip())
    lines.append("")
    kinds: dict[tuple[object, ...], list[Judged]] = {}
    for gate in judgement.gates:
        kinds.setdefault(
            (gate.passed, gate.kind, gate.workload, gate.bound, gate.limit, gate.passed or gate), []
        ).append(gate)
    for (passed, *_), group in kinds.items():
        worst = (max if group[0].bound == "at_most" else min)(group, key=lambda gate: gate.value or 0.0)
        others = f" (and {len(group) - 1} more arms, no worse)" if len(group) > 1 else ""
        lines.append(f"  {'passed' if passed else 'MISSED':8} {worst.name}: {worst.reason}{others}")
    green = sum(gate.passed for gate in judgement.gates)
    lines += ["", f"{judgement.verdict.upper()}: {green} of {len(judgement.gates)} gates passed"]
    return "\n".join([*lines, *(f"  {reason}" for reason in judgement.invalid)])


def client_cost_ns(evidence: Evidence) -> list[int]:
    """Latencies of the measured posts to the null endpoint."""
    rows = [row for row in evidence.timings if row.arm == NULL_ARM and row.measured]
    return [row.latency_ns for row in rows if row.latency_ns is not None]
