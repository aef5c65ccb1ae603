"""A rung's verdict in a few lines, from the rows of its run by now.

Takes a run folder and an arm's name; returns text that carries the same as data. Apart from ``rung`` because it needs
no experiment file and nothing but the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openjev_lab.evidence import read
from openjev_lab.measure import gates
from openjev_lab.notebook.show import Text
from openjev_lab.report import tables

Line = tuple[str, str]
"""(what, what was found)"""


def judge(folder: Path, arm: str) -> Text:
    """Status, times, saving against the rung below, parity and gates of one arm."""
    evidence = read(folder)
    judgement = gates.judge(evidence)
    told = judgement.arms[arm]
    data: dict[str, Any] = {"arm": arm, "verdict": told["verdict"], "reasons": told["reasons"]}
    lines: list[Line] = [(told["verdict"], "; ".join(told["reasons"]) or "every request answered")]
    if told["verdict"] in ("valid", "invalid"):
        data |= figures(folder, arm)
        lines += list(spoken(data))
    lines += [("passed" if gate.passed else "MISSED", f"{gate.name}: {gate.reason}") for gate in judgement.about(arm)]
    return Text("\n".join(f"- **{what}** {found}" for what, found in lines), data)


def figures(folder: Path, arm: str) -> dict[str, Any]:
    """The arm's row of the ladder, of the savings and of the parity table, by table."""
    found: dict[str, Any] = {}
    for name, frame in (
        ("ladder", tables.ladder(folder)),
        ("savings", tables.savings(folder)),
        ("parity", tables.parity(folder)),
    ):
        rows = [row for row in frame.to_dicts() if row["arm"] == arm]
        found[name] = list({row.get("base"): row for row in reversed(rows)}.values())  # below may be the baseline too
    return found


def spoken(data: dict[str, Any]) -> Iterator[Line]:
    """The figures in words."""
    for row in data["ladder"]:
        if row["mean_ms"] is not None:
            yield "takes", f"{row['mean_ms']:.2f} ms on average over {row['requests']} requests, {row['passes']} passes"
    for row in data["savings"]:
        if row["saving_percent"] is not None:
            low, high = row["saving_percent_low"], row["saving_percent_high"]
            interval = "" if low is None or high is None else f" (95 % interval {low:.1f} to {high:.1f} %)"
            yield (
                "saves",
                f"{row['saving_percent']:.1f} % against {row['base']}{interval}, {row['ratio']:.2f} times as fast",
            )
    for row in data["parity"]:
        if row["max_difference"] is not None:
            bits = "equal bits" if row["unequal_scores"] == 0 else f"{row['unequal_scores']} scores with other bits"
            yield (
                "agrees",
                f"with {row['base']}: largest difference {row['max_difference']:.2e}, {row['flips']} flips, {bits}",
            )
