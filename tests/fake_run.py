"""An experiment over fake servers, and a program that runs it: python fake_run.py RUN_DIR [SECONDS_A_REQUEST]

Small on purpose: two arms and a skipped one, a mix of twelve yes-or-no requests, and one request of several questions.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from openjev_lab.evidence import Run
from openjev_lab.measure import gates, passes, workload
from openjev_lab.measure.experiment import Arm, Experiment, filled
from openjev_lab.measure.server import Command
from openjev_lab.measure.workload import Work, WorkItem

SERVER = Path(__file__).with_name("fake_server.py")
MIX, REAL = "mix", "cases"
REQUESTS = 12
PASSES = 2
GATES = [
    {"metric": "max_probability_difference", "arms": ["scalar"], "base": "raw-hf", "workload": MIX, "at_most": 0.001},
    {"metric": "unequal_scores", "arms": ["scalar"], "base": "below", "workload": REAL, "at_most": 0},
    {"metric": "accuracy", "arms": ["raw-hf", "scalar"], "workload": MIX, "at_least": 1.0},
]


def raw(**changes: Any) -> dict[str, Any]:
    """The experiment as its YAML would hold it."""
    return {
        "name": "fake",
        "title": "Nothing is measured here",
        "hypothesis": "Fakes agree.",
        "checkpoint": "synthetic:tiny?seed=1",
        "device": "cpu",
        "dtype": "float32",
        "arms": ["raw-hf", "scalar", "graph-64"],
        "workloads": [{"name": MIX, "kind": "mix", "file": "none.csv"}, {"name": REAL, "kind": "jevbench"}],
        "protocol": {"passes": PASSES, "startup_timeout_s": 30, "request_timeout_s": 10},
        "gates": GATES,
        **changes,
    }


def experiment(**changes: Any) -> Experiment:
    """The same, filled in."""
    told = raw(**changes)
    return Experiment.model_validate(told | {"arms": filled(told["arms"])})


def work(requests: int = REQUESTS) -> Work:
    """Yes-or-no requests with labels that the fake server meets, and one request of three questions."""

    def item(request_id: str, state: str, questions: dict[str, Any], label: bool | None) -> WorkItem:
        request = {"state": state, "questions": questions}
        return WorkItem(request_id, request, len(questions), len(state), label, workload.serialized(request))

    ask = {"q": {"type": "noul", "instructions": "?"}}
    states = [("yes" if index % 3 else "no") + "." * (80 + 50 * index) for index in range(requests)]
    mix = [item(f"r{index:02}", state, ask, state.startswith("yes")) for index, state in enumerate(states)]
    many = ask | {"c": {"type": "choice", "criteria": {"a": None, "b": None}}}
    many |= {"s": {"type": "score", "criteria": [1, 2, 3]}}
    return Work({MIX: tuple(mix), REAL: (item("case-1", "yes, of course", many, None),)})


def command(options: dict[str, dict[str, Any]] | None = None, **common: Any) -> Command:
    """Starts a fake server with ``common`` options and those of its arm."""

    def start(_: Experiment, arm: Arm) -> Sequence[str]:
        told = {"rung": arm.rung, "parent_pid": os.getpid(), **common, **(options or {}).get(arm.name, {})}
        return [sys.executable, "-S", str(SERVER), json.dumps(told)]

    return start


def measure(run_dir: Path | str, told: Experiment | None = None, **given: Any) -> gates.Judgement:
    """``run_experiment`` over fake servers, with ``work()`` instead of what a tokenizer would make."""
    with mock.patch.object(workload, "build", lambda _: work()):
        return passes.run_experiment(
            told or experiment(), run_dir, progress=lambda _: None, **{"command": command()} | given
        )


def open_run(run_dir: Path | str, told: Experiment | None = None, *, resume: bool = False) -> Run:
    """``open_run`` with ``work()``."""
    with mock.patch.object(workload, "build", lambda _: work()):
        return passes.open_run(run_dir, told or experiment(), resume=resume)


if __name__ == "__main__":
    measure(sys.argv[1], resume=True, command=command(delay_s=float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
