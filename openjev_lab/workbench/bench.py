"""Is a kernel faster? The variants of a family that run here, timed in turns, and what the differences are worth.

Takes a ``Target``, a CPU ``Place`` and a length; returns ``Timed`` rows. Nothing is timed before every variant that
would be is right (``Wrong`` carries the results instead). Each round times every variant once, beginning with another
one each time, over input buffers that rotate, so drift of the machine falls on all of them alike. Differences are then
judged by the ratios within a round. Apart from ``measure``, which times a served model and not a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, comb
from statistics import median, quantiles
from time import perf_counter_ns

from openjev_lab.errors import LabError
from openjev_lab.notebook.show import table
from openjev_lab.ops.contract import Maker, Step, torch_dtype
from openjev_lab.ops.families import Family, Variant
from openjev_lab.workbench import checking
from openjev_lab.workbench.targets import Place, Target

ROTATED_BYTES = 64 * 2**20
"""Buffers rotate through at least so much memory, if ``MAX_SETS`` of them reach it: more than most caches hold."""
MAX_SETS = 16
SAMPLE_NS = 2_000_000
"""Calls are repeated until a sample lasts about this long, which the clock's own cost does not touch."""
WARM_UP_NS = 200_000_000
MIN_ROUNDS = 8
"""The fewest rounds whose smallest and largest ratio enclose the median 99 times of 100."""


class Wrong(Exception):
    """The gate was not green, so nothing was timed."""

    def __init__(self, results: list[checking.Result]) -> None:
        super().__init__("a variant is wrong")
        self.results = results


@dataclass(frozen=True, slots=True)
class Timed:
    """One variant's time for one step."""

    variant: str
    median_us: float
    low_us: float
    """First quartile of the rounds; ``high_us`` is the third."""
    high_us: float
    bytes_per_s: float
    """The family's ``cost`` over the median: least traffic, not what the caches really moved."""
    flops: float
    ratio: float
    """Median over the rounds of this variant's time over the fastest one's in the same round; 1 for the fastest."""
    ratio_low: float
    """99 % interval of that median, from order statistics: no shape of the noise is assumed."""
    ratio_high: float

    @property
    def differs(self) -> bool:
        """Whether the run tells this variant from the fastest."""
        return not self.ratio_low <= 1 <= self.ratio_high

    @property
    def visible(self) -> float:
        """The smallest difference that the run could have seen, as a share: its interval's longer arm."""
        return max(self.ratio_high - self.ratio, self.ratio - self.ratio_low)


@dataclass(frozen=True, slots=True)
class Bench:
    """One family at one length."""

    family: str
    tokens: int
    case: str
    sets: int
    rotated_bytes: int
    rounds: int
    threads: int
    rows: tuple[Timed, ...]
    """Fastest first."""


def bench(target: Target, where: Place, tokens: Sequence[int], *, rounds: int = 25, seed: int = 0) -> list[Bench]:
    """Checks, then times. Raises `Wrong`; `LabError` where nothing can run, on a GPU, or for too few rounds."""
    if where.device != "cpu":
        raise LabError(
            "bench times on a CPU only: timing on a GPU by replay of captured graphs and events is not there yet; "
            "--device cpu is right, or openjev-lab run for a whole model on a GPU"
        )
    if rounds < MIN_ROUNDS:
        raise LabError(f"{rounds} rounds can't tell a difference from noise; {MIN_ROUNDS} or more are right")
    family = target.family
    if target.variant:  # refuses a named variant that can't run here, with its reason
        checking.check(target, where, tokens[:1], seed)
    results = checking.check(Target(family, None), where, sorted({*checking.TOKENS, *tokens}), seed)
    if checking.faulty(results):
        raise Wrong(results)
    able = [result.name for result in results if result.checks and result.tolerance is not None]
    if not able:
        raise LabError(f"no variant of {family.name} can run {where}")
    variants = [family.variant(name) for name in able]
    return [_at(family, variants, where, length, rounds, seed) for length in tokens]


def _at(family: Family, variants: Sequence[Variant], where: Place, tokens: int, rounds: int, seed: int) -> Bench:
    import torch

    case = family.module.CASES[0]
    generator = torch.Generator().manual_seed(seed)
    make = Maker(where.geometry, tokens, generator, where.device, where.dtype)
    sets = [family.module.make_io(make, case)]
    set_bytes = sum(tensor.numel() * tensor.element_size() for tensor in sets[0].values())
    count = min(max(2, ceil(ROTATED_BYTES / set_bytes)), MAX_SETS)
    sets += [family.module.make_io(make, case) for _ in range(count - 1)]
    steps = {v.name: [v.bind(where.geometry, io, where.dtype) for io in sets] for v in variants}
    times = interleaved(steps, tokens, rounds)
    cost = family.module.cost(where.geometry, tokens, torch_dtype(where.dtype).itemsize)
    rows = summarise(times, cost.bytes, cost.flops)
    return Bench(family.name, tokens, case, count, count * set_bytes, rounds, torch.get_num_threads(), tuple(rows))


def interleaved(steps: dict[str, list[Step]], tokens: int, rounds: int) -> dict[str, list[float]]:
    """Nanoseconds a call, a sample a round, for each variant's steps over the rotated buffers."""
    repeats = {name: _warm_up(bound, tokens) for name, bound in steps.items()}
    names, times = list(steps), {name: [0.0] * rounds for name in steps}
    for index in range(rounds):
        first = index % len(names)
        for name in names[first:] + names[:first]:
            times[name][index] = _sample(steps[name], tokens, repeats[name])
    return times


def _warm_up(bound: Sequence[Step], tokens: int) -> int:
    """Runs for `WARM_UP_NS`; returns how many turns through the buffers make a sample."""
    begun, turns = perf_counter_ns(), 0
    while turns < 2 or perf_counter_ns() - begun < WARM_UP_NS:
        turn = _sample(bound, tokens, 1)
        turns += 1
    return max(1, ceil(SAMPLE_NS / (turn * len(bound))))


def _sample(bound: Sequence[Step], tokens: int, turns: int) -> float:
    begun = perf_counter_ns()
    for _ in range(turns):
        for step in bound:
            step(tokens)
    return (perf_counter_ns() - begun) / (turns * len(bound))


def summarise(times: dict[str, list[float]], moved_bytes: int, flops: int) -> list[Timed]:
    """Medians, quartiles, and each variant's ratio to the fastest, fastest first."""
    best = min(times, key=lambda name: median(times[name]))
    rows = []
    for name, samples in sorted(times.items(), key=lambda entry: median(entry[1])):
        middle = median(samples)
        low, _, high = quantiles(samples, n=4)
        ratios = [mine / its for mine, its in zip(samples, times[best], strict=True)]
        rate = 1e9 / middle
        rows.append(
            Timed(
                name, middle / 1e3, low / 1e3, high / 1e3, moved_bytes * rate, flops * rate, median(ratios),
                *median_interval(ratios),
            )
        )  # fmt: skip
    return rows


def median_interval(values: Sequence[float], confidence: float = 0.99) -> tuple[float, float]:
    """The order statistics that enclose the median with at least `confidence` (sign test; Conover, "Practical
    Nonparametric Statistics", 1999, section 3.2)."""
    ordered, count = sorted(values), len(values)
    skip, outside = -1, 0.0
    while (outside := outside + 2 * comb(count, skip + 1) / 2**count) <= 1 - confidence:
        skip += 1
    if skip < 0:
        raise LabError(f"{count} values are too few for an interval of the median at {confidence:.0%}")
    return ordered[skip], ordered[-1 - skip]


def verdict(row: Timed) -> str:
    """In words, against the fastest; what the run could have seen where it saw nothing."""
    if row.ratio_low == row.ratio_high == 1:
        return "fastest"
    if row.differs:
        return f"slower by {row.ratio - 1:.1%} ({row.ratio_low - 1:.1%} to {row.ratio_high - 1:.1%})"
    return f"no difference (the run could see {row.visible:.1%})"


def text(found: Bench, where: Place) -> str:
    """The table of one length."""
    rows = [
        {
            "variant": row.variant,
            "median us": row.median_us,
            "quartiles us": f"{row.low_us:.4g} to {row.high_us:.4g}",
            "GB/s": row.bytes_per_s / 1e9,
            "GFLOP/s": row.flops / 1e9,
            "of fastest": row.ratio,
            "verdict": verdict(row),
        }
        for row in found.rows
    ]
    head = (
        f"{found.family}: {found.tokens} tokens, {found.case}, {where}; {found.rounds} rounds, "
        f"{found.threads} threads, "
        f"{found.sets} buffer sets in rotation ({found.rotated_bytes / 2**20:.3g} MiB)"
    )
    return f"{head}\n{table(rows).markdown}"
