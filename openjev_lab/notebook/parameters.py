"""What a notebook may be told, checked at once: the second code cell of every notebook builds one of these.

Takes the values of the parameters cell; raises pydantic's error for a wrong type, an unknown rung or a missing file.
Apart from ``rung`` because notebooks about the device and the workload need no more than this.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

ROOT = Path(__file__).resolve().parents[2]
BY_HAND = ROOT / "reports" / "by-hand"
BY_HAND_REQUESTS = 6


class Parameters(BaseModel):
    """Shared by all notebooks. Paths are from the project's root, wherever the kernel was started."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    experiment: str
    """The experiment's YAML."""
    run_dir: str | None
    """Where the ladder records; None by hand: a scratch folder of this notebook's own, fresh at each start."""
    profile: str | None = None
    """A named variation of the experiment."""

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
        return self.run_dir is None


class RungParameters(Parameters):
    """Of a notebook about one rung."""

    rung: str
    sample_requests: int = Field(default=BY_HAND_REQUESTS, ge=2)
    """How many requests of the mix are measured by hand; a run takes them all."""

    @model_validator(mode="after")
    def _rung_exists(self) -> Self:
        from openjev_lab import rungs

        names = [rung.name for rung in rungs.LADDER]
        if self.rung not in names:
            raise ValueError(f"there is no rung {self.rung!r}; there are {', '.join(names)}")
        return self


def run_folder(parameters: Parameters, name: str) -> Path:
    """The run's folder, or by hand a fresh scratch folder ``reports/by-hand/NAME``."""
    if parameters.run_dir is not None:
        return ROOT / parameters.run_dir
    scratch = BY_HAND / name
    shutil.rmtree(scratch, ignore_errors=True)
    return scratch
