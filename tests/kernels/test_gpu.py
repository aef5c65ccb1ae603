"""Every CUDA C++ variant against its family's reference on a GPU: odd lengths, every kind of input, guard rows, graphs.

python -m pytest -m gpu tests/kernels/test_gpu.py
"""

from dataclasses import replace
from typing import Any

import pytest

from openjev_lab.geometry import KNOWN
from openjev_lab.ops import check, directives
from openjev_lab.ops.families import KERNELS, load_family

pytestmark = pytest.mark.gpu

LENGTHS = (1, 2, 3, 4, 63, 64, 65, 107, 127, 128, 129, 936, 3399)
LONGEST = 16384
GEOMETRY = replace(KNOWN["27b"], vocab_size=1000)  # the embedding table alone would take longer than all the rest
VARIANTS = [(path.parent.name, path.stem) for path in sorted(KERNELS.glob("*/*.cu"))]
TWINS = [
    (path.parent.name, group)
    for path in sorted(KERNELS.glob("*/family.py"))
    for group in load_family(path.parent.name).module.EXACT
    if all((path.parent / f"{name}.cu").is_file() for name in group)
]


def run(family: str, name: str, tokens: int, case: str | None = None, geometry: Any = GEOMETRY) -> None:
    variant = load_family(family).variant(name)
    verdict = check.check(variant, geometry, tokens, device="cuda:0", dtype="bfloat16", seed=tokens, case=case)
    assert verdict.ok, verdict.faults


@pytest.mark.parametrize("tokens", LENGTHS)
@pytest.mark.parametrize(("family", "name"), VARIANTS)
def test_agrees_with_the_reference(family: str, name: str, tokens: int) -> None:
    run(family, name, tokens)


@pytest.mark.parametrize("name", [name for family, name in VARIANTS if family == "attention"])
def test_attention_at_its_longest(name: str) -> None:
    run("attention", name, LONGEST)


@pytest.mark.parametrize(("family", "name"), VARIANTS)
def test_every_kind_of_input(family: str, name: str) -> None:
    for case in load_family(family).module.CASES:
        for tokens in (65, 200):
            run(family, name, tokens, case)


@pytest.mark.parametrize("geometry", ["9b", "2b", "tiny"])
@pytest.mark.parametrize(("family", "name"), VARIANTS)
def test_other_geometries(family: str, name: str, geometry: str) -> None:
    path = KERNELS / family / f"{name}.cu"
    unmet = directives.parse(path.read_text(), path).unmet(KNOWN[geometry])
    if unmet:
        with pytest.raises(ValueError, match="needs"):
            run(family, name, 130, geometry=KNOWN[geometry])
    else:
        run(family, name, 130, geometry=replace(KNOWN[geometry], vocab_size=1000))


@pytest.mark.parametrize("tokens", [1, 65, 936])
@pytest.mark.parametrize(("family", "group"), TWINS)
def test_twins_agree_bit_for_bit(family: str, group: tuple[str, ...], tokens: int) -> None:
    found = load_family(family)
    outputs = []
    for name in group:
        io = check.prepare(
            found, GEOMETRY, tokens, device="cuda:0", dtype="bfloat16", seed=7, case=found.module.CASES[0]
        )
        found.variant(name).bind(GEOMETRY, io, "bfloat16")(tokens)
        outputs.append({key: io[key] for key in found.module.OUTPUTS})
    for other in outputs[1:]:
        assert all(check.same_bits(outputs[0][key], other[key]) for key in other)


@pytest.mark.parametrize(("family", "name"), VARIANTS)
def test_one_binding_serves_many_lengths_and_a_graph(family: str, name: str) -> None:
    """A step at a shorter length than before, and its replay from a graph, give what a fresh binding gives."""
    import torch

    found = load_family(family)
    outputs: list[dict[str, Any]] = []
    for how in ("fresh", "again", "graph"):
        io = check.prepare(found, GEOMETRY, 107, device="cuda:0", dtype="bfloat16", seed=9, case=found.module.CASES[0])
        kept = {key: tensor.clone() for key, tensor in io.items()}
        step = found.variant(name).bind(GEOMETRY, io, "bfloat16")
        if how != "fresh":
            step(100)
            for key, tensor in kept.items():
                io[key].copy_(tensor)
        if how == "graph":
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                step(107)
            graph.replay()
        else:
            step(107)
        outputs.append({key: io[key] for key in found.module.OUTPUTS})
    for other in outputs[1:]:
        assert all(check.same_bits(outputs[0][key], other[key]) for key in other)
