"""Measure a trained tiny package again, from its files alone, and compare with what it records or write it down.

    python -m openjev_lab.tiny.recheck checkpoints/tiny [--write]

Makes every training prompt again (``training.json`` says from which seed and courses) to see that no held-out prompt is
among them, then decides the held-out requests with and without the adapter. A quarter of an hour on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openjev_lab.tiny import evaluate
from openjev_lab.tiny.examples import Course, batches
from openjev_lab.tiny.train import machine


def recheck(package: Path, device: str, workers: int, scale: float = 1.0) -> dict[str, Any]:
    """The facts of ``evaluate.measure`` for a package, at its own temperature; ``scale`` as there."""
    import torch
    from peft import PeftModel
    from transformers import AutoModel

    from openjev_lab.tiny import stages

    recorded = json.loads((package / "training.json").read_text(encoding="utf-8"))
    courses = [Course(**course) for stage in recorded["stages"] for course in stage["courses"]]
    seed, base_dir, checkpoint = recorded["seed"], package / "base", package / "checkpoint"
    base = AutoModel.from_pretrained(base_dir, dtype=torch.float32)
    text = PeftModel.from_pretrained(base, checkpoint / "adapter").eval().to(device)
    weights = torch.load(checkpoint / "head.pt", weights_only=True)
    head = torch.nn.Linear(weights["weight"].shape[1], 1)
    head.load_state_dict(weights)
    temperature = json.loads((checkpoint / "temperature.json").read_text(encoding="utf-8"))["temperature"]
    with (
        evaluate.preparing(evaluate.splits(scale), seed, base_dir, workers) as items_of,
        batches(base_dir, seed, courses, workers) as stream,
    ):
        seen = {digest for batch in stream for digest in batch.digests.tolist()}
        found = evaluate.measure(items_of, stages.rows_by(text, head.to(device), device), seen, temperature)
    return {**found, "measured_on": machine(device)}


def main(argv: Sequence[str] | None = None) -> None:
    """The command line: prints what is found, and with ``--write`` puts it into ``training.json``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("package", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) - 1))
    parser.add_argument("--write", action="store_true", help="put it into training.json")
    given = parser.parse_args(argv)
    found = recheck(given.package, given.device, given.workers)
    print(json.dumps(found, indent=2))
    if given.write:
        file = given.package / "training.json"
        facts = {**json.loads(file.read_text(encoding="utf-8")), **found}
        file.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
