"""The ladder: neighbours differ in one thing, exact rungs are exact, every arm agrees with the lowest.

python -m pytest tests/test_rungs.py
"""

import dataclasses
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openjev_lab import rungs
from openjev_lab.errors import LabError
from openjev_lab.forward import OPS
from openjev_lab.ops.families import load_family

NAMES = ("raw-hf", "merged-hf", "scalar", "fused-gate", "cached-rmsnorm", "packed-silu", "graph-64")
CHANGES = [rung for rung in rungs.LADDER if rung.base is not None]
ON_CPU = [name for name in NAMES if rungs.available(name, "cpu")[0]]


def test_the_ladder_is_a_chain_from_raw_hf_to_graphs() -> None:
    assert rungs.names() == NAMES
    assert [rung.base for rung in rungs.LADDER] == [None, *NAMES[:-1]]
    assert [rung.kind for rung in rungs.LADDER] == ["hf-raw", "hf-merged"] + ["native"] * 5
    assert all(rung.hypothesis.endswith(".") for rung in rungs.LADDER)


@pytest.mark.parametrize("rung", CHANGES, ids=lambda rung: rung.name)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_neighbours_differ_in_exactly_one_thing(rung: rungs.Rung, device: str) -> None:
    below, own = (dataclasses.asdict(rungs.resolve(name, device)) for name in (rung.base or "", rung.name))
    differing = {field for field in own if below[field] != own[field]}
    if rung.kind == "native" and below["kind"] == "native":
        assert len(differing) == 1
        if "ops" in differing:
            swapped = {op for op in own["ops"] if own["ops"][op] != below["ops"][op]}
            assert swapped == set(rung.change["ops"]) and len(swapped) == 1
    else:  # another engine: whatever it runs inside belongs to the change
        assert differing <= {"kind", "ops"} and "kind" in differing
    assert len(rung.change) == 1


@pytest.mark.parametrize("rung", [rung for rung in CHANGES if "ops" in rung.change], ids=lambda rung: rung.name)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_exact_rung_swaps_variants_that_promise_equal_bits(rung: rungs.Rung, device: str) -> None:
    ((op, variants),) = rung.change["ops"].items()
    pair = {rungs.resolve(rung.base or "", device).ops[op], variants[device]}
    assert rung.exact == any(pair <= set(group) for group in load_family(op).module.EXACT)


def test_every_native_rung_names_a_variant_of_every_op_that_is_there() -> None:
    for name in NAMES[2:]:
        ops = rungs.resolve(name, "cpu").ops
        assert set(ops) == set(OPS)
        assert all(load_family(op).variant(variant).name == variant for op, variant in ops.items())


def test_graphs_have_no_meaning_on_a_cpu() -> None:
    assert rungs.resolve("graph-64", "cuda").graphs == 64
    assert rungs.available("graph-64", "cpu") == (
        False,
        "CUDA graphs need a CUDA device; this rung has no meaning on a CPU",
    )
    with pytest.raises(LabError, match="rung graph-64 can't run on cpu: CUDA graphs need"):
        rungs.load_arm("graph-64", "synthetic:tiny?seed=3")
    # elsewhere its row must say so too, until the engine captures
    assert rungs.available("graph-64", "cuda") == (False, "this engine runs eagerly and captures no CUDA graphs yet")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_variant_that_a_rung_names_is_there(device: str) -> None:
    for name in NAMES:
        for op, variant in rungs.resolve(name, device).ops.items():
            assert load_family(op).variant(variant).name == variant


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rungs.load_arm("scaler", "x"), "no rung 'scaler'; there are raw-hf, merged-hf, scalar"),
        (lambda: rungs.resolve("scalar", "tpu"), "device 'tpu' is unknown"),
        (lambda: rungs.load_arm("scalar", "/nowhere/at/all"), "/nowhere/at/all"),
    ],
)
def test_faults_are_said_in_one_sentence(call: Any, words: str) -> None:
    with pytest.raises(LabError, match=words):
        call()


def test_listing_rungs_imports_nothing_heavy() -> None:
    program = (
        "import sys; from openjev_lab import rungs; [rungs.available(name) for name in rungs.names()]; "
        "print([m for m in ('torch', 'numba', 'transformers', 'cupy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_idle_threads_are_calmed_unless_the_environment_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, wanted in (
        ({}, "3000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, None),
    ):
        for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
            monkeypatch.setenv(name, "to be removed, and put back by the fixture")
            monkeypatch.delenv(name)
        for name, value in given.items():
            monkeypatch.setenv(name, value)
        rungs.calm_threads()
        assert os.environ.get("GOMP_SPINCOUNT") == wanted


@pytest.fixture(scope="module")
def scores(tiny_package: Path) -> dict[str, list[float]]:
    """Every arm's scores of the same four candidates."""
    found = {}
    for name in ON_CPU:
        arm = rungs.load_arm(name, tiny_package, threads=1, max_tokens=300)
        limit = arm.geometry.vocab_size
        found[name] = [arm.score([(7 * i + 3 * i * i) % limit for i in range(tokens)]) for tokens in (1, 64, 107, 300)]
    return found


def test_all_rungs_but_the_graphs_run_on_a_cpu(scores: dict[str, list[float]]) -> None:
    assert tuple(scores) == NAMES[:-1]
    assert len(set(scores["raw-hf"])) == 4


@pytest.mark.parametrize("name", ON_CPU[1:])
def test_every_arm_agrees_with_raw_hf(name: str, scores: dict[str, list[float]]) -> None:
    for ours, raw in zip(scores[name], scores["raw-hf"], strict=True):
        assert abs(1 / (1 + math.exp(-ours)) - 1 / (1 + math.exp(-raw))) <= 1e-5


@pytest.mark.parametrize("name", [name for name in ON_CPU if rungs.get(name).exact])
def test_an_exact_rung_has_the_very_scores_of_its_base(name: str, scores: dict[str, list[float]]) -> None:
    assert scores[name] == scores[rungs.get(name).base or ""]


def test_an_arm_says_what_it_is_and_keeps_the_limit(tiny_package: Path) -> None:
    arm = rungs.load_arm("fused-gate", tiny_package, threads=1, max_tokens=1000)
    told = arm.describe()
    assert (told["rung"], told["threads"], told["buffer_rows"]) == ("fused-gate", 1, 1024)
    assert {op: value["variant"] for op, value in told["ops"].items()} == rungs.resolve("fused-gate").ops
    assert arm.package.max_length == 4096
    with pytest.raises(LabError, match="4097 tokens; this checkpoint takes 1 to 4096"):
        arm.score([1] * 4097)
