"""Arm by arm, pass by pass: what a run does, in the order in which it does it.

Takes an open run; starts an arm's server, sends it the workload, appends a row a request. Every step asks the run first
what is there already, so that a run which was stopped goes on where it was. Apart from ``client`` and ``server``, which
know nothing of runs.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openjev_lab import rungs
from openjev_lab.evidence import NULL_ARM, ArmRow, Run, TimingRow, read, write_timings
from openjev_lab.evidence.rows import FEASIBILITY, FIRST_INFERENCE
from openjev_lab.evidence.run import GATES, RESOLVED, WORKLOAD, dump
from openjev_lab.evidence.sums import replace
from openjev_lab.measure import answers, gates, workload
from openjev_lab.measure.client import Client
from openjev_lab.measure.experiment import Arm, Experiment
from openjev_lab.measure.server import Command, Server, ServerFailed, serve_command
from openjev_lab.measure.workload import Work, WorkItem

if TYPE_CHECKING:
    from tqdm import tqdm

SYSTEMONE, NULL = "/v1/systemone", "/null"


def open_run(run_dir: Path | str, experiment: Experiment, *, resume: bool = False) -> Run:
    """``Run.open`` with the requests to send, made once a run, and their hash and the checkpoint's."""

    def prepare(folder: Path) -> dict[str, Any]:
        if not (folder / RESOLVED).exists():
            replace(folder / WORKLOAD, workload.build(experiment).dump())
        return workload.read(folder / WORKLOAD).inputs(experiment.checkpoint)

    return Run.open(run_dir, experiment, prepare, resume=resume)


def run_experiment(
    experiment: Experiment,
    run_dir: Path | str,
    *,
    resume: bool = False,
    arms: Sequence[str] | None = None,
    command: Command = serve_command,
    progress: Callable[[str], None] = print,
) -> gates.Judgement:
    """Measure every arm (or those named), one after the other, and judge.

    ``progress`` is told the plan, and what became of each arm.

    An arm that fails is recorded, and the others go on. Raises LabError as ``open_run`` does.
    """
    names = [experiment.arm(name).name for name in arms] if arms else [arm.name for arm in experiment.arms]
    with open_run(run_dir, experiment, resume=resume) as run:
        progress(plan(experiment, workload.read(run.folder / WORKLOAD)))
        for name in names:
            row = run_arm(run, name, command=command)
            progress(f"{name:16} {row.status:8} {row.reason or ''}".rstrip())
    return finalize(run_dir)


def finalize(run_dir: Path | str) -> gates.Judgement:
    """Write timings.parquet and gates.json from the rows there are; again and again, if need be.

    ``evidence.seal`` comes last, once the report is there too.
    """
    evidence = read(run_dir)
    write_timings(evidence)
    judgement = gates.judge(evidence)
    replace(evidence.folder / GATES, dump(judgement.document()))
    return judgement


def plan(experiment: Experiment, work: Work | None = None) -> str:
    """What a run will do, for a terminal: nothing is started."""
    work, protocol = work or workload.build(experiment), experiment.protocol
    lines = [f"{experiment.title}: {experiment.checkpoint} on {experiment.device}, {experiment.dtype}"]
    for name, items in work.items.items():
        tokens = sorted(item.expected_tokens for item in items)
        lines.append(f"  {name}: {len(items)} requests of {tokens[0]:,} to {tokens[-1]:,} tokens")
    lines.append(
        f"  {protocol.passes} measured passes, {protocol.order}, after the first inference and one excluded pass;"
        " one request at a time"
    )
    for arm in experiment.arms:
        ok, reason = rungs.available(arm.rung, experiment.device)
        lines.append(f"  {arm.name:16} {'' if ok else 'skipped: ' + reason}".rstrip())
    return "\n".join([*lines, f"  {sum(len(gate.arms) for gate in experiment.gates)} gates"])


def run_arm(run: Run, name: str, *, command: Command = serve_command) -> ArmRow:
    """Measure one arm into the run, or what is missing of it; returns what became of it, as recorded.

    Nothing is started for an arm that is measured already, or that can't run here. Raises LabError for an unknown arm.
    """
    experiment = Experiment.model_validate(run.resolved)
    arm, work = experiment.arm(name), workload.read(run.folder / WORKLOAD)
    last = run.arm(name)
    if last is not None and last.status == "measured":
        return last
    available, reason = rungs.available(arm.rung, experiment.device)
    if not available:
        known = last is not None and (last.status, last.reason) == ("skipped", reason)
        return last if known and last is not None else run.append_arm(name, "skipped", reason=reason)
    if last is not None and last.status == "running" and not _missing(run, experiment, name, work):
        return run.append_arm(name, "measured", attempt=last.attempt, describe=last.describe)
    return _measure(run, experiment, arm, work, command)


def _measure(run: Run, experiment: Experiment, arm: Arm, work: Work, command: Command) -> ArmRow:
    """Start the arm's server and send it everything that has no row yet."""
    attempt = run.attempts(arm.name)
    try:
        with Server(command(experiment, arm), experiment.protocol.startup_timeout_s) as server:
            description = server.description
            run.append_arm(arm.name, "running", attempt=attempt, describe=description)
            with Client(server.url, experiment.protocol.request_timeout_s) as client:
                Sender(run, experiment, arm.name, attempt, server, client).everything(work)
    except ServerFailed as problem:
        return run.append_arm(arm.name, "failed", reason=str(problem), attempt=attempt)
    return run.append_arm(arm.name, "measured", attempt=attempt, describe=description)


def _missing(run: Run, experiment: Experiment, arm: str, work: Work) -> int:
    """Measured requests of an arm that have no row yet."""
    return sum(
        len(items) - len(run.done(arm, name, index))
        for name, items in work.items.items()
        for index in range(experiment.protocol.passes)
    )


class Sender:
    """Sends an arm's requests in their order and appends their rows."""

    def __init__(
        self, run: Run, experiment: Experiment, arm: str, attempt: int, server: Server, client: Client
    ) -> None:
        self._run, self._protocol, self._arm, self._attempt = run, experiment.protocol, arm, attempt
        self._experiment, self._server, self._client = experiment, server, client

    def everything(self, work: Work) -> None:
        """First inference, feasibility, the client's own cost once a run, then the measured passes.

        Raises ``ServerFailed`` if the process ends on the way; the rows so far stay.
        """
        first = next(iter(work.items.items()))
        missing = _missing(self._run, self._experiment, self._arm, work)
        with _bar(self._arm, missing) as bar, _quiet():
            self._pass(*first, FIRST_INFERENCE, first[1][:1])
            for name, items in work.items.items():
                self._pass(name, items, FEASIBILITY, items)
            for index in range(self._protocol.client_passes):
                self._client_pass(first[1], index)
            for index in range(self._protocol.passes):
                for name, items in work.items.items():
                    backwards = self._protocol.order == "alternated" and index % 2 == 1
                    self._pass(name, items, index, items[::-1] if backwards else items, bar)

    def _pass(
        self, name: str, items: Sequence[WorkItem], index: int, order: Sequence[WorkItem], bar: tqdm | None = None
    ) -> None:
        """One pass over a workload in the given order; what has its row is passed over."""
        done = self._run.done(self._arm, name, index) if index >= 0 else set()
        for position, item in enumerate(order):
            if item.request_id in done:
                continue
            reply = self._client.post(self._client.message(SYSTEMONE, item.body))
            self._append(self._arm, name, index, position, item, answers.columns(reply))
            if bar is not None:
                bar.update()
            if reply.error is not None and not self._server.alive():
                raise self._server.failed(f"ended while it answered {item.request_id}, pass {index} of {name}")

    def _client_pass(self, items: Sequence[WorkItem], index: int) -> None:
        """The same bodies to an endpoint that only reads and answers: what the client and HTTP cost in this run."""
        done = self._run.done(NULL_ARM, NULL_ARM, index)
        for position, item in enumerate(items):
            if item.request_id not in done:
                reply = self._client.post(self._client.message(NULL, item.body))
                self._append(NULL_ARM, NULL_ARM, index, position, item, answers.null_columns(reply))

    def _append(
        self, arm: str, workload_name: str, index: int, position: int, item: WorkItem, columns: dict[str, object]
    ) -> None:
        model = arm != NULL_ARM
        row = {
            "run_id": self._run.run_id,
            "arm": arm,
            "workload": workload_name,
            "pass_index": index,
            "measured": index >= 0,
            "position": position,
            "request_id": item.request_id,
            "question_count": item.question_count,
            "expected_tokens": item.expected_tokens if model else None,
            "label": item.label if model else None,
            "attempt": self._attempt,
        }
        self._run.append_timing(TimingRow.model_validate(row | columns))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No garbage collection while an arm is measured: its pauses would be in somebody's latency."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _bar(arm: str, total: int) -> tqdm:
    """Progress over an arm's measured requests; silent without a terminal."""
    from tqdm import tqdm

    return tqdm(total=total, desc=arm, unit="request", disable=None, leave=False)
