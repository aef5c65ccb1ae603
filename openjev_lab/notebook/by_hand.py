"""What a notebook measures when somebody opens it by hand: two arms, a few requests, two passes, in minutes saved.

Takes the whole experiment; returns a smaller one whose workload is a sample of the mix, spread over its lengths. Apart
from ``rung`` because a run knows nothing of samples.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from openjev_lab.errors import LabError
from openjev_lab.measure.experiment import Experiment, Mix, project_path
from openjev_lab.runner import relative

PASSES = 2
FILE = "sample.csv"


def sample(whole: Experiment, arms: Sequence[str], requests: int, folder: Path) -> Experiment:
    """The experiment with only ``arms`` and ``requests`` of its mix, written as ``folder/sample.csv``; no gates.

    Raises LabError where the experiment has no mix, or fewer requests than asked for.
    """
    mixes = [workload for workload in whole.workloads if isinstance(workload, Mix)]
    if not mixes:
        raise LabError(f"experiment {whole.name} has no mix to take a sample of")
    with project_path(mixes[0].file).open(newline="", encoding="utf-8") as file:
        rows = sorted(csv.DictReader(file), key=lambda row: (int(row["tokens"]), row["id"]))
    if not 2 <= requests <= len(rows):
        raise LabError(f"a sample of {requests} requests; 2 to {len(rows)} are possible")
    chosen = [rows[round(i * (len(rows) - 1) / (requests - 1))] for i in range(requests)]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / FILE
    path.write_text("id,tokens\n" + "".join(f"{row['id']},{row['tokens']}\n" for row in chosen), encoding="utf-8")
    kept = {arm.name: arm for arm in whole.arms if arm.name in arms}
    small = [arm.model_copy(update={"base": arm.base if arm.base in kept else None}) for arm in kept.values()]
    return whole.model_copy(
        update={
            "arms": tuple(small),
            "workloads": (mixes[0].model_copy(update={"file": relative(path)}),),
            "protocol": whole.protocol.model_copy(update={"passes": PASSES, "client_passes": 0}),
            "gates": (),
        }
    )
