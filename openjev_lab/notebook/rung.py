"""A rung's notebook: what changed, what it should save, whether it is right, what it takes, a verdict.

Takes checked ``RungParameters``; each method is one cell and returns something to look at. Every cell can be run again:
measuring continues the run folder, and a rung that is measured stays as it is. Apart from ``checks``, which loads
models, because most cells need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openjev_lab import rungs
from openjev_lab.errors import LabError
from openjev_lab.measure import passes
from openjev_lab.notebook import arithmetic, sources
from openjev_lab.notebook.by_hand import sample
from openjev_lab.notebook.parameters import ROOT, RungParameters
from openjev_lab.notebook.show import Drawing, Text, cell, table
from openjev_lab.notebook.verdict import judge

if TYPE_CHECKING:
    from openjev_lab.measure.experiment import Arm


class RungNotebook:
    """One rung in one run folder."""

    def __init__(self, parameters: RungParameters) -> None:
        self.rung = rungs.get(parameters.rung)
        self.folder = parameters.folder(parameters.rung)
        whole = parameters.load()
        found = [arm for arm in whole.arms if arm.rung == parameters.rung]
        if not found:
            raise LabError(f"experiment {whole.name} does not measure rung {parameters.rung}")
        self.arm: Arm = found[0]
        self.arms = [name for name in (self.arm.base, self.arm.name) if name]
        if parameters.by_hand:
            whole = sample(whole, self.arms, parameters.sample_requests, self.folder)
        self.experiment = whole
        passes.open_run(self.folder, self.experiment, resume=True).close()  # makes the requests, or checks those there

    def __repr__(self) -> str:
        shown = self.folder.relative_to(ROOT) if self.folder.is_relative_to(ROOT) else self.folder
        return f"{self.arm.name} of {self.experiment.name}, into {shown}"

    def change(self) -> Text:
        """The rung as data, and what it is expected to do."""
        rung = self.rung
        ((what, change),) = rung.change.items()
        told = {
            "rung": rung.name,
            "below": rung.base or "nothing",
            "changes": what,
            "to": change,
            "same bits": rung.exact,
        }
        return Text(f"{rung.hypothesis}\n\n{table([{'': key, 'value': cell(value)} for key, value in told.items()])}")

    def code(self) -> Text:
        """The code of this rung, as a difference from the one below where it replaces some."""
        return sources.changed(self.rung, self.experiment.device)

    def arithmetic(self) -> Text:
        """Bytes, FLOPs and launches, computed from the geometry."""
        return table(arithmetic.rows(self.rung.name))

    def check_kernels(self) -> Text:
        """Every kernel that changed against its reference; raises LabError if one is wrong."""
        from openjev_lab.notebook import checks

        return checks.kernels(self.rung, self.experiment)

    def check_scores(self) -> Text:
        """This rung and the one below on a few requests, in this process; raises LabError where a promise is broken."""
        from openjev_lab.notebook import checks

        return checks.scores(self.rung, self.experiment, self.folder)

    def measure(self) -> Text:
        """Measure what is missing of this rung and of the one below; raises LabError if one of them broke."""
        with passes.open_run(self.folder, self.experiment, resume=True) as run:
            rows = [passes.run_arm(run, name) for name in self.arms]
        failed = [f"{row.arm}: {row.reason}" for row in rows if row.status == "failed"]
        if failed:
            raise LabError("; ".join(failed))
        return table([{"arm": row.arm, "status": row.status, "reason": row.reason or ""} for row in rows])

    def savings_chart(self) -> Drawing:
        """Against the rung below; for the first rung and for one that can't run here, the ladder so far."""
        from openjev_lab.report import charts

        if self.arm.base is None or not set(self.arms) <= set(self._measured()):
            return Drawing(charts.ladder(self.folder))
        return Drawing(charts.saving(self.folder, self.arm.name, self.arm.base))

    def length_chart(self) -> Drawing:
        """Latency against tokens, of this rung and the one below."""
        from openjev_lab.report import charts

        arms = [name for name in self.arms if name in self._measured()]
        return Drawing(charts.latency_by_tokens(self.folder, arms))

    def verdict(self) -> Text:
        """Status, saving, parity, and each gate on this arm, from the rows that there are by now."""
        return judge(self.folder, self.arm.name)

    def _measured(self) -> list[str]:
        from openjev_lab.report import tables

        return tables.measured_arms(self.folder)
