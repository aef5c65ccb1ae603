"""Is a kernel right? Every variant against its family's reference, at odd sizes, in every case, on fresh inputs.

Takes a ``Target`` and a ``Place``; returns a ``Result`` a variant and one a promise of equal bits. Apart from
``ops.check``, which judges one run of one variant: here a variant that raises is a fault and not the end of the table,
and one that can't run here is told with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openjev_lab.errors import LabError
from openjev_lab.notebook.show import table
from openjev_lab.ops import check as ops_check
from openjev_lab.ops.contract import Buffers
from openjev_lab.ops.families import Family, Variant
from openjev_lab.workbench.targets import Place, Target, members

TOKENS = (1, 2, 3, 63, 64, 65, 107)
"""One row, a few, both sides of a chunk of the delta rule, and a prime."""
SHOWN_FAULTS = 5


@dataclass(frozen=True, slots=True)
class Result:
    """What the checks of one variant, or of one group that promises equal bits, came to."""

    name: str
    checks: int
    """How often it was run and compared; 0 if it can't run here."""
    worst: float | None
    """Largest error of a row (see ``ops.check.Verdict.errors``), NaN where an output was not finite; None for bits."""
    tolerance: float | None
    faults: tuple[str, ...]
    skipped: str = ""
    """Why it can't run here; empty if it ran."""


def check(target: Target, where: Place, tokens: Sequence[int] = TOKENS, seed: int = 0) -> list[Result]:
    """The results, variants first. Raises ``LabError`` if a variant that was named can't run here."""
    family = target.family
    if any(length < 1 for length in tokens) or not tokens:
        raise LabError(f"tokens {list(tokens)}: lengths of 1 and more are right")
    if where.dtype not in family.module.TOLERANCE:
        raise LabError(f"kernel family {family.name!r} declares no tolerance for {where.dtype}")
    results = [_variant(name, it, where, tokens, seed) for name, it in target.members().items()]
    if target.variant and results[0].skipped:
        raise LabError(f"{family.name}/{target.variant} can't run {where}: {results[0].skipped}")
    green = {result.name for result in results if result.checks and not result.faults}
    for group in family.module.EXACT:
        if target.variant is None:
            names = [name for name in group if name in green]
        else:  # a named variant's promise is about its neighbours too, so they run although they were not named
            names = _able(family, group, where) if target.variant in group and green else []
        if len(names) > 1:
            results.append(_bits(family, names, where, tokens, seed))
    return results


def _able(family: Family, group: Sequence[str], where: Place) -> list[str]:
    there = members(family)
    found = [(name, there[name]) for name in group if name in there]
    return [
        name
        for name, it in found
        if isinstance(it, Variant) and it.supports(where.geometry, where.device, where.dtype)[0]
    ]


def _variant(name: str, it: Variant | LabError, where: Place, tokens: Sequence[int], seed: int) -> Result:
    if isinstance(it, LabError):
        return Result(name, 0, None, None, (str(it),))
    able, reason = it.supports(where.geometry, where.device, where.dtype)
    tolerance = it.family.module.TOLERANCE[where.dtype]
    if not able:
        return Result(name, 0, None, tolerance, (), reason)
    errors, faults, checks = [0.0], [], 0
    for length in tokens:
        for case in it.family.module.CASES:
            checks += 1
            at = f"{length} tokens, {case}"
            how = {"device": where.device, "dtype": where.dtype, "case": case}
            try:
                verdict = ops_check.check(it, where.geometry, length, seed=seed + length, **how)
            except Exception as problem:  # whatever a kernel under work raises is its fault, in words
                faults.append(f"{at}: {type(problem).__name__}: {problem}")
                continue
            errors += verdict.errors.values()
            faults += [f"{at}: {fault}" for fault in verdict.faults]
    worst = float("nan") if any(error != error for error in errors) else max(errors)
    return Result(name, checks, worst, tolerance, tuple(faults))


def _bits(family: Family, group: Sequence[str], where: Place, tokens: Sequence[int], seed: int) -> Result:
    """Whether the variants leave the same bits in every output, from the same inputs."""
    faults, checks = [], 0
    for length in tokens:
        for case in family.module.CASES:
            try:
                first, *others = (_outputs(family.variant(name), where, length, case, seed) for name in group)
            except Exception as problem:  # as in _variant
                faults.append(f"{length} tokens, {case}: {type(problem).__name__}: {problem}")
                continue
            for name, found in zip(group[1:], others, strict=True):
                checks += 1
                differ = [key for key in first if not ops_check.same_bits(first[key], found[key])]
                if differ:
                    faults.append(f"{length} tokens, {case}: {', '.join(differ)} of {name} and {group[0]} differ")
    return Result(f"equal bits: {' = '.join(group)}", checks, None, None, tuple(faults))


def _outputs(variant: Variant, where: Place, tokens: int, case: str, seed: int) -> Buffers:
    family = variant.family
    how = {"device": where.device, "dtype": where.dtype, "case": case}
    io = ops_check.prepare(family, where.geometry, tokens, seed=seed + tokens, **how)
    variant.bind(where.geometry, io, where.dtype)(tokens)
    return {name: io[name][:tokens] if field.per_token else io[name] for name, field in family.module.OUTPUTS.items()}


def faulty(results: Sequence[Result]) -> bool:
    """Whether any result has a fault."""
    return any(result.faults for result in results)


def text(results: Sequence[Result]) -> str:
    """A table, then the first faults of each in words."""
    rows = [
        {
            "what": result.name,
            "verdict": "WRONG" if result.faults else f"not here: {result.skipped}" if result.skipped else "right",
            "checks": result.checks,
            "largest error": result.worst,
            "tolerance": result.tolerance,
        }
        for result in results
    ]
    lines = [table(rows).markdown] if rows else ["no variants"]
    for result in results:
        lines += [f"{result.name}: {fault}" for fault in result.faults[:SHOWN_FAULTS]]
        if len(result.faults) > SHOWN_FAULTS:
            lines.append(f"{result.name}: and {len(result.faults) - SHOWN_FAULTS} more")
    return "\n".join(lines)
