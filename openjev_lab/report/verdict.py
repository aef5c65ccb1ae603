"""The report's first lines: does the run count, are its gates green, and what does it say in three sentences.

Takes the run folder (or a loaded Run) and its frames; returns words. Apart from ``page`` because this is the part that
a reader quotes, and each sentence has its own test.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from openjev_lab.report import facts, tables
from openjev_lab.report.source import Gate, Run


@dataclass(frozen=True, slots=True)
class Verdict:
    """``state`` is valid, missed, invalid or open; ``reasons`` say why it is not valid, one sentence each."""

    state: str
    title: str
    reasons: tuple[str, ...]


def verdict(run: Run) -> Verdict:
    """INVALID where evidence says so or a measured request failed; else by the gates; open while none was judged."""
    failed = facts.errors(run)
    reasons = list(run.invalid)
    if not reasons and failed.height:
        reasons.append(f"{int(failed['requests'].sum())} measured requests failed: see Errors.")
    missed = _missed(run)
    if reasons:
        return Verdict("invalid", "INVALID", (*reasons, *missed))
    if run.gates is None:
        return Verdict("open", "NOT JUDGED", ("The gates were not evaluated: the run did not come to its end.",))
    if missed:
        count = sum(not gate.passed for gate in run.gates)
        return Verdict("missed", f"VALID, {count} of {len(run.gates)} gates missed", missed)
    if not run.gates:
        return Verdict("valid", "VALID, no gates declared", ())
    return Verdict("valid", f"VALID, all {len(run.gates)} gates passed", ())


def _missed(run: Run) -> tuple[str, ...]:
    """A line for each declared gate that an arm misses, with the reason of the first such arm."""
    lines: dict[tuple[str, str, str, float], list[Gate]] = {}
    for gate in run.gates or ():
        if not gate.passed:
            lines.setdefault((gate.kind, gate.workload, gate.bound, gate.limit), []).append(gate)
    return tuple(_in_words(gates) for gates in lines.values())


def _in_words(gates: list[Gate]) -> str:
    arms = ", ".join(gate.arm for gate in gates)
    reason = gates[0].reason if len(gates) == 1 else f"{gates[0].arm}: {gates[0].reason}"
    return f"Missed gate: {gates[0].kind.replace('_', ' ')} of {arms} on {gates[0].workload} ({reason})"


def headline(run: Run, frames: dict[str, pl.DataFrame]) -> list[str]:
    """What was found: the fastest arm against the baseline, agreement, accuracy, and which arms have no figure."""
    ladder = frames["ladder"]
    measured = ladder.filter(pl.col("mean_ms").is_not_null())
    if measured.is_empty():
        return ["No request was measured in this run."]
    return [
        _speed(run, measured, frames["savings"]),
        *_agreement(run, frames["parity"]),
        *_accuracy(measured),
        *_absent(ladder),
    ]


def _speed(run: Run, measured: pl.DataFrame, savings: pl.DataFrame) -> str:
    fastest = measured.sort("mean_ms", "arm").row(0, named=True)
    base, workload = tables.baseline(run), tables.main_workload(run)
    sentence = f"{fastest['arm']} answers a request of {workload} in {fastest['mean_ms']:,.1f} ms on average"
    against = savings.filter(
        (pl.col("arm") == fastest["arm"]) & (pl.col("against") == "baseline") & pl.col("ratio").is_not_null()
    )
    if against.is_empty():
        return sentence + ("." if fastest["arm"] == base else f"; {base} was not measured beside it.")
    row = against.row(0, named=True)
    low, high = row["ratio_low"], row["ratio_high"]
    interval = "" if low is None else f", 95 % interval {low:.2f} to {high:.2f}"
    return f"{sentence}, {row['ratio']:.2f} times as fast as {base} ({row['base_mean_ms']:,.1f} ms{interval})."


def _agreement(run: Run, parity: pl.DataFrame) -> list[str]:
    rows = parity.filter(pl.col("against") == "baseline")
    if rows.is_empty():
        return []
    flips, base = int(rows["flips"].sum()), tables.baseline(run)
    worst = rows.sort("max_difference", "arm", descending=[True, False]).row(0, named=True)
    decisions = "Every arm decides every request as" if not flips else f"{flips} decisions differ from"
    return [
        f"{decisions} {base}; the largest probability difference is {worst['max_difference']:.1e} ({worst['arm']})."
    ]


def _accuracy(measured: pl.DataFrame) -> list[str]:
    labelled = measured.filter(pl.col("labelled") > 0)
    if labelled.is_empty():
        return []
    counts = {f"{row['correct']} of {row['labelled']}" for row in labelled.iter_rows(named=True)}
    if len(counts) == 1:
        return [f"Every arm agrees with the label on {counts.pop()} requests."]
    each = ", ".join(f"{row['arm']} {row['correct']} of {row['labelled']}" for row in labelled.iter_rows(named=True))
    return [f"Decisions that agree with their label: {each}."]


def _absent(ladder: pl.DataFrame) -> list[str]:
    absent = ladder.filter(pl.col("mean_ms").is_null())["arm"].to_list()
    return [f"Without a figure: {', '.join(absent)} (reasons in the ladder)."] if absent else []
