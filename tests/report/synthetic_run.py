"""Synthetic evidence in the recorded schema: a ladder whose true numbers the tests know."""

import json
from pathlib import Path

import numpy as np
import polars as pl

from openjev_lab.report import source

MIX = "mix74"
LADDER = {
    # name: (kind, base, fixed ms, ms a token, score noise against raw-hf)
    "raw-hf": ("hf-raw", None, 38.0, 0.105, 0.0),
    "merged-hf": ("hf-merged", "raw-hf", 27.0, 0.080, 2e-6),
    "scalar": ("native", "merged-hf", 5.2, 0.0445, 4e-6),
    "fused-gate": ("native", "scalar", 5.1, 0.0435, 4e-6),
    "cached-rmsnorm": ("native", "fused-gate", 5.0, 0.0405, 4e-6),
    "packed-silu": ("native", "cached-rmsnorm", 4.8, 0.0365, 4e-6),
    "graph-64": ("native", "packed-silu", 4.0, 0.03, 4e-6),
}
EXACT = ("fused-gate", "cached-rmsnorm", "packed-silu", "graph-64")
SKIPPED = {"graph-64": "CUDA graphs need a CUDA device; this rung has no meaning on a CPU"}
TOKENS = tuple(int(80 * (3399 / 80) ** (i / 73) ** 1.6) for i in range(74))
STARTED_NS = 1_793_000_000_000_000_000


def timing_rows(arms=LADDER, passes=(-1, 0, 1), workload=MIX, tokens=TOKENS):
    """Rows as evidence records them; an arm's noise is its own, its scores are shared by the native arms."""
    rows = []
    for arm, (kind, _, fixed_ms, per_token_ms, noise) in arms.items():
        if arm in SKIPPED:
            continue
        rng = np.random.default_rng([len(arm), *arm.encode()])
        scores = np.random.default_rng(7).normal(0, 3, len(tokens))
        scores = scores + noise * np.random.default_rng([9, kind == "native"]).normal(0, 1, len(tokens))
        for pass_index in passes:
            for position, count in enumerate(tokens):
                execute_ms = (fixed_ms + per_token_ms * count) * (1 + abs(rng.normal(0, 0.02)))
                rows.append(_row(arm, workload, pass_index, position, count, execute_ms, scores[position]))
    return rows


def _row(arm, workload, pass_index, position, count, execute_ms, score):
    probability = 1 / (1 + np.exp(-score))
    return {
        "run_id": "synthetic",
        "arm": arm,
        "workload": workload,
        "pass_index": pass_index,
        "measured": pass_index >= 0,
        "position": position,
        "request_id": f"r{position:03}",
        "question_count": 1,
        "tokens": count,
        "expected_tokens": count,
        "label": bool(score > 0) if position % 25 else bool(score <= 0),
        "started_ns": STARTED_NS + pass_index * 10**10 + position * 10**8,
        "latency_ns": int((execute_ms + 2.4) * 1e6),
        "queue_ns": 60_000,
        "prepare_ns": 420_000 + 300 * count,
        "execute_ns": int(execute_ms * 1e6),
        "finish_ns": 45_000,
        "probability": float(probability),
        "score": float(score),
        "probabilities": [float(probability)],
        "scores": [float(score)],
        "status": 200,
        "response_sha256": "0" * 64,
        "error": None,
        "attempt": 0,
    }


def flipped(rows, arm, request_id):
    """The rows with the decision of ``arm`` on one request turned round."""
    for row in rows:
        if (row["arm"], row["request_id"]) == (arm, request_id):
            row["probability"] = 1 - row["probability"]
            row["probabilities"] = [row["probability"]]
    return rows


SCHEMA = source.TIMINGS | {"run_id": pl.String, "response_sha256": pl.String}
MANIFEST = {
    "run_id": "synthetic",
    "created": "2026-10-28T09:12:44+00:00",
    "git": {"revision": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
    "packages": {"torch": "2.13.0", "transformers": "5.24.0", "peft": "0.20.0", "numba": "0.68.0", "numpy": "2.4.6"},
    "python": "3.11.9",
    "machine": {"cpu": "Example CPU", "cpu_count": 2, "gpus": []},
    "affinity": [0, 1],
    "code_sha256": "c0de" * 16,
    "argv": ["openjev-lab", "ladder"],
}
GATES = [
    {
        "name": "max_probability_difference of packed-silu against raw-hf on mix74",
        "kind": "max_probability_difference", "arm": "packed-silu", "base": "raw-hf", "workload": MIX,
        "bound": "at_most", "limit": 0.01, "value": 2.48e-06, "passed": True,
        "reason": "largest probability difference 2.48e-06; at most 0.01 was declared",
    },
    {
        "name": "speedup of packed-silu against raw-hf on mix74",
        "kind": "speedup", "arm": "packed-silu", "base": "raw-hf", "workload": MIX,
        "bound": "at_least", "limit": 3.0, "value": 3.51, "passed": True,
        "reason": "3.51 times as fast by the mean; at least 3 was declared",
    },
]  # fmt: skip


def resolved(arms=LADDER):
    """The experiment as evidence stores it."""
    return {
        "name": "ladder-synthetic",
        "title": "The ladder on made-up numbers",
        "hypothesis": "Each rung removes something, and all decide alike.",
        "checkpoint": "checkpoints/tiny",
        "device": "cpu",
        "dtype": "float32",
        "threads": 2,
        "arms": [
            {"name": name, "rung": name, "kind": kind, "base": base, "exact": name in EXACT}
            | {"hypothesis": f"{name} removes something"}
            for name, (kind, base, *_) in arms.items()
        ],
        "workloads": [{"name": MIX, "requests": len(TOKENS)}],
        "protocol": {"passes": 2, "order": "alternated"},
    }


def write_run(folder: Path, rows=None, *, arms=LADDER, gates=GATES, invalid=(), statuses=None, manifest=MANIFEST):
    """A run folder; ``rows=[]`` leaves no measured row, ``gates=None`` leaves the gates unjudged."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = timing_rows(arms) if rows is None else rows
    pl.DataFrame(rows, schema=SCHEMA).write_parquet(folder / "timings.parquet")
    if statuses is None:
        statuses = {name: "skipped" if name in SKIPPED else "measured" for name in arms}
    records = [
        {"arm": name, "status": status, "reason": None if status == "measured" else SKIPPED.get(name, "it broke")}
        | {"describe": {"geometry": "tiny"} if status == "measured" else {}}
        for name, status in statuses.items()
    ]
    (folder / "arms.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    dump(folder / "resolved.json", resolved(arms))
    dump(folder / "manifest.json", manifest)
    if gates is not None:
        dump(folder / "gates.json", {"verdict": "passed", "invalid": list(invalid), "arms": {}, "gates": gates})
    notebooks = [{"notebook": "10-raw-hf", "status": "done", "duration_s": 31.2, "error": None}]
    dump(folder / "index.json", {"notebooks": notebooks})
    return folder


def dump(path: Path, value) -> None:
    """JSON as evidence writes it."""
    path.write_text(json.dumps(value, allow_nan=False, indent=1, sort_keys=True) + "\n")
