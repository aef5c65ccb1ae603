"""Is a rung right? Its kernels against their references, and its scores against the rung below, in this process.

Takes a rung and an experiment; returns a table, or raises LabError for a wrong kernel and for bits that a rung promised
and did not keep: a rung that is wrong is not timed. Apart from ``rung`` because this is what needs torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from openjev_lab import rungs
from openjev_lab.errors import LabError
from openjev_lab.evidence.run import WORKLOAD
from openjev_lab.geometry import Geometry
from openjev_lab.measure import workload
from openjev_lab.measure.experiment import Experiment, Mix, project_path
from openjev_lab.notebook.show import Text, table
from openjev_lab.notebook.sources import changed_ops
from openjev_lab.ops import check
from openjev_lab.ops.families import Variant, load_family

TOKENS = (1, 63, 64, 65, 130)
"""Around one chunk of the delta rule, one row, and more than two chunks."""
SCORED = 4
"""Requests that are scored in this process."""


def kernels(rung: rungs.Rung, experiment: Experiment) -> Text:
    """The variants that are new in this rung, each at ``TOKENS``: worst row error beside the tolerance, bits beside."""
    available, reason = rungs.available(rung.name, experiment.device)
    if not available:
        return Text(f"Not here: {reason}.")
    swapped = changed_ops(rung, experiment.device)
    if not swapped:
        return Text("No kernel of ours changes on this rung.")
    geometry = geometry_of(experiment)
    return table([_checked(op, name, before, geometry, experiment) for op, (before, name) in swapped.items()])


def geometry_of(experiment: Experiment) -> Geometry:
    """The geometry of the experiment's checkpoint, without its weights."""
    from openjev_lab.checkpoint import load_package

    checkpoint = experiment.checkpoint
    return load_package(checkpoint if checkpoint.startswith("synthetic:") else project_path(checkpoint)).geometry


def _checked(op: str, name: str, before: str | None, geometry: Geometry, experiment: Experiment) -> dict[str, Any]:
    family = load_family(op)
    variant = family.variant(name)
    where = {"device": experiment.device, "dtype": experiment.dtype}
    verdicts = [
        check.check(variant, geometry, tokens, seed=tokens, case=case, **where)
        for tokens in TOKENS
        for case in family.module.CASES
    ]
    wrong = [f"{v.tokens} tokens, {v.case}: {fault}" for v in verdicts for fault in v.faults]
    if wrong:
        raise LabError(f"{op}/{name} is wrong at {'; '.join(wrong)}")
    row = {
        "op": op,
        "variant": name,
        "checks": len(verdicts),
        "worst error": max(error for verdict in verdicts for error in verdict.errors.values()),
        "tolerance": verdicts[0].tolerance,
    }
    if before is None:
        return row
    promised = any({name, before} <= set(group) for group in family.module.EXACT)
    equal = all(_same(family.variant(before), variant, geometry, tokens, experiment) for tokens in TOKENS)
    if promised and not equal:
        raise LabError(f"{op}: {name} and {before} promise equal bits and differ")
    return row | {"replaces": before, "equal bits": equal}


def _same(one: Variant, other: Variant, geometry: Geometry, tokens: int, experiment: Experiment) -> bool:
    """Whether two variants leave the same bits in every output, from the same inputs."""
    outputs = []
    for variant in (one, other):
        where = {"device": experiment.device, "dtype": experiment.dtype}
        io = check.prepare(variant.family, geometry, tokens, seed=tokens, case=variant.family.module.CASES[0], **where)
        variant.bind(geometry, io, experiment.dtype)(tokens)
        outputs.append(io)
    return all(
        check.same_bits(outputs[0][name][:tokens], outputs[1][name][:tokens]) for name in one.family.module.OUTPUTS
    )


def scores(rung: rungs.Rung, experiment: Experiment, folder: Path) -> Text:
    """Scores of the run's shortest requests: this rung, the one below, and what it decides beside the label."""
    available, reason = rungs.available(rung.name, experiment.device)
    if not available:
        return Text(f"Not here: {reason}.")
    arms = {name: load(name, experiment) for name in filter(None, (rung.base, rung.name))}
    rows = list(_scored(arms, experiment, folder))
    if rung.exact and rung.base and any(row[rung.name] != row[rung.base] for row in rows):
        raise LabError(f"{rung.name} promises the bits of {rung.base} and has other scores")
    return table(rows)


def load(name: str, experiment: Experiment) -> rungs.Arm:
    """The rung's arm on the experiment's checkpoint, in this process."""
    checkpoint = experiment.checkpoint
    where = checkpoint if checkpoint.startswith("synthetic:") else project_path(checkpoint)
    return rungs.load_arm(name, where, device=experiment.device, dtype=experiment.dtype, threads=experiment.threads)


def _scored(arms: dict[str, rungs.Arm], experiment: Experiment, folder: Path) -> Iterator[dict[str, Any]]:
    from openjev_lab.contract import compile_request
    from openjev_lab.tokens import Prompter

    work = workload.read(folder / WORKLOAD)
    mix = next(spec.name for spec in experiment.workloads if isinstance(spec, Mix))
    items = sorted(work.items[mix], key=lambda item: item.expected_tokens)[:SCORED]
    prompter = Prompter.load(workload.tokenizer_dir(experiment.checkpoint))
    for item in items:
        ids = prompter.encode(compile_request(item.request)[0].prompts[0])
        found = {name: arm.score(ids) for name, arm in arms.items()}
        values = list(found.values())
        row: dict[str, Any] = {"request": item.request_id, "tokens": len(ids), **found}
        if len(values) == 2:
            row["difference"] = abs(values[0] - values[1])
        yield row | {"decides": values[-1] >= 0, "label": item.label}
