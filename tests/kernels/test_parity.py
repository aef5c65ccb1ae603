"""Every variant that runs on this machine's CPU against its family's reference, at odd lengths and on every input kind.

Outputs start as NaN, rows past the length must keep their bits, inputs are fresh each time. A file that is dropped
into a family's folder is tested here with no other edit.

python -m pytest tests/kernels/test_parity.py
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from openjev_lab.geometry import KNOWN, Geometry
from openjev_lab.ops import check
from openjev_lab.ops.families import Variant, family_names, load_family

LENGTHS = (1, 2, 3, 63, 64, 65, 107, 300)
TINY = KNOWN["tiny"]
# The 27B model's ratios (6 query heads a key head, 3 value heads a key head), and widths of few factors of two.
RATIOS = replace(
    KNOWN["27b"],
    name="ratios",
    vocab_size=300,
    hidden=136,
    intermediate=216,
    heads=6,
    kv_heads=1,
    head_dim=40,
    rotary_dim=12,
    linear_k_heads=2,
    linear_v_heads=6,
    linear_k_dim=32,
    linear_v_dim=48,
)
GEOMETRIES = {geometry.name: geometry for geometry in (TINY, RATIOS)}


def variants(geometry: Geometry, dtype: str) -> list[Variant]:
    found = [variant for name in family_names() for variant in load_family(name).variants().values()]
    return [variant for variant in found if variant.supports(geometry, "cpu", dtype)[0]]


def cases(dtype: str) -> Iterator[object]:
    for geometry in GEOMETRIES.values():
        for variant in variants(geometry, dtype):
            name = f"{variant.family.name}-{variant.name}-{geometry.name}-{dtype}"
            yield pytest.param(variant, geometry, dtype, id=name)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("variant", "geometry", "dtype"), [*cases("float32"), *cases("bfloat16")])
def test_agrees_with_the_reference(variant: Variant, geometry: Geometry, dtype: str) -> None:
    for tokens in LENGTHS:
        verdict = check.check(variant, geometry, tokens, dtype=dtype, seed=tokens)
        assert verdict.ok, (tokens, verdict.faults)


@pytest.mark.parametrize(("variant", "geometry", "dtype"), [*cases("float32"), *cases("bfloat16")])
def test_every_kind_of_input(variant: Variant, geometry: Geometry, dtype: str) -> None:
    for case in variant.family.module.CASES:
        verdict = check.check(variant, geometry, 70, dtype=dtype, seed=1, case=case)
        assert verdict.ok, (case, verdict.faults)


def output_bits(variant: Variant, geometry: Geometry, tokens: int) -> dict[str, torch.Tensor]:
    family = variant.family
    io = check.prepare(
        family, geometry, tokens, device="cpu", dtype="float32", seed=tokens, case=family.module.CASES[0]
    )
    variant.bind(geometry, io, "float32")(tokens)
    return {name: io[name] for name in family.module.OUTPUTS}


GROUPS = [
    pytest.param(name, group, id=f"{name}-{'-'.join(group)}")
    for name in family_names()
    for group in load_family(name).module.EXACT
    if all(load_family(name).variant(one).supports(TINY, "cpu", "float32")[0] for one in group)
]


@pytest.mark.parametrize(("family", "group"), GROUPS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_variants_that_promise_it_have_equal_bits(family: str, group: tuple[str, ...], geometry: str) -> None:
    for tokens in LENGTHS:
        first, *others = (output_bits(load_family(family).variant(n), GEOMETRIES[geometry], tokens) for n in group)
        for other in others:
            assert all(check.same_bits(first[name], other[name]) for name in first), tokens


def test_the_three_contrasts_of_the_ladder_promise_equal_bits() -> None:
    assert {param.values[0] for param in GROUPS} == {"add_rmsnorm", "attention", "silu_mul"}


NUMBA = [
    pytest.param(variant, id=f"{variant.family.name}-{variant.name}")
    for variant in variants(TINY, "float32")
    if variant.backend == "numba_cpu"
]


@pytest.mark.parametrize("variant", NUMBA)
def test_cutting_work_among_threads_changes_no_bit(variant: Variant) -> None:
    alone = output_bits(variant, TINY, 3100)
    torch.set_num_threads(3)
    together = output_bits(variant, TINY, 3100)
    assert all(check.same_bits(alone[name], together[name]) for name in alone)
