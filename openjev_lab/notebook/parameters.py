"""What a notebook may be told, checked at once: the second code cell of every notebook builds one of these.

Takes the values of the parameters cell; raises pydantic's error for a wrong type, an unknown rung or a missing file.
Apart from ``rung`` because notebooks about the device and the workload need no more than this.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from openjev_lab import rungs
from openjev_lab.measure.experiment import Experiment, load

ROOT = Path(__file__).resolve().parents[2]
BY_HAND = "by-hand"
"""As ``run_dir``. Words and not None, because papermill's list of parameters does not know ``str | None``."""
NO_PROFILE = "none"
SCRATCH = ROOT / "reports" / BY_HAND
BY_HAND_REQUESTS = 6


class Parameters(BaseModel):
    """Shared by all notebooks. Paths are from the project's root, wherever the kernel was started."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    experiment: str
    """The experiment's YAML."""
    run_dir: str
    """Where the ladder records, or ``by-hand``: a scratch folder of this notebook's own, fresh at each start."""
    profile: str
    """A named variation of the experiment, or ``none``."""

    @model_validator(mode="after")
    def _experiment_is_there(self) -> Self:
        if not self.experiment_path.is_file():
            raise ValueError(f"experiment {self.experiment} is no file below {ROOT}")
        return self

    @property
    def experiment_path(self) -> Path:
        return ROOT / self.experiment

    @property
    def by_hand(self) -> bool:
        """Whether no run folder was given: then a small sample is measured into scratch."""
        return self.run_dir == BY_HAND

    def load(self) -> Experiment:
        """The whole experiment, as its profile has it."""
        return load(self.experiment_path, None if self.profile == NO_PROFILE else self.profile)

    def folder(self, name: str) -> Path:
        """The run's folder, or by hand a fresh scratch folder ``reports/by-hand/NAME``."""
        if not self.by_hand:
            return ROOT / self.run_dir
        scratch = SCRATCH / name
        shutil.rmtree(scratch, ignore_errors=True)
        return scratch


class RungParameters(Parameters):
    """Of a notebook about one rung."""

    rung: str
    sample_requests: int = Field(default=BY_HAND_REQUESTS, ge=2)
    """How many requests of the mix are measured by hand; a run takes them all."""

    @model_validator(mode="after")
    def _rung_exists(self) -> Self:
        rungs.get(self.rung)  # raises LabError, which is a ValueError, with the names there are
        return self
