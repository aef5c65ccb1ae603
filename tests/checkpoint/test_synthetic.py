"""Weights from a seed: specs, the same values for every arm and device, and a network that is sane and has opinions.

python -m pytest tests/checkpoint/test_synthetic.py
"""

import hashlib
from pathlib import Path

import pytest
import torch

from openjev_lab.checkpoint import Package, base_tensors, load_package, lora_tensors, synthetic, tensors
from openjev_lab.errors import LabError
from openjev_lab.geometry import KNOWN

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def tokenizer(tiny_package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Synthetic packages borrow a tokenizer; here the fixture's."""
    monkeypatch.setattr(synthetic, "TOKENIZER", tiny_package / "base")


@pytest.fixture
def package() -> Package:
    return load_package("synthetic:tiny?seed=7")


def test_a_spec_is_a_package(package: Package, tiny_package: Path) -> None:
    assert (package.kind, package.model_id, package.revision) == ("synthetic", "synthetic/tiny", "seed-7")
    assert package.geometry is KNOWN["tiny"] and package.tokenizer_dir == tiny_package / "base"
    assert package.aliases == ("synthetic/tiny", "open-jev", "jev-latest", "open-jev-tiny")
    assert package.content_hashes() == {} and package.base_dir is None and package.adapter_dir is None
    assert package.head_bias == 0.0 and load_package("synthetic:tiny?seed=7&bias=-1.5").head_bias == -1.5


def test_a_large_geometry_opens_at_once() -> None:
    package = load_package("synthetic:27b?seed=0")
    assert package.lora and len(package.lora.modules) == 160 and package.head_weight.shape == (5120,)


SPECS = {
    "synthetic:28b?seed=0": "names no known geometry; .* one of 27b, 9b, 4b, 2b, tiny",
    "synthetic:": "names no known geometry",
    "synthetic:tiny": "'' is no option",
    "synthetic:tiny?": "'' is no option",
    "synthetic:tiny?seed=": "gives no seed, or not one whole number",
    "synthetic:tiny?seed=-1": "gives no seed, or not",
    "synthetic:tiny?seed=1.5": "gives no seed, or not",
    "synthetic:tiny?seed=99999999999": "gives no seed, or not",
    "synthetic:tiny?seed=2147483648": "gives no seed, or not",
    "synthetic:tiny?seed=1&seed=2": "'seed=2' is no option, or is given twice",
    "synthetic:tiny?seed=1&scale=2": "'scale=2' is no option",
    "synthetic:tiny?seed=1&bias=nan": "bias must be a plain number",
}


@pytest.mark.parametrize("spec", SPECS)
def test_a_bad_spec_says_how_one_is_written(spec: str) -> None:
    with pytest.raises(LabError, match=SPECS[spec]) as caught:
        load_package(spec)
    assert repr(spec) in str(caught.value)


def test_a_missing_tokenizer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "TOKENIZER", tmp_path)
    with pytest.raises(LabError, match="tokenizer.json is missing: synthetic weights use the tiny checkpoint's"):
        load_package("synthetic:tiny?seed=0")


def test_values_are_what_they_were_when_runs_were_recorded() -> None:
    """A run is comparable with an older one only if the seed still means the same numbers."""
    digest = hashlib.sha256()
    for name, tensor in synthetic.base_tensors(KNOWN["tiny"], 0, "cpu"):
        if name.startswith(("layers.0.", "layers.3.", "norm")):
            digest.update(tensor.numpy().tobytes())
    assert digest.hexdigest() == ("fb2ad5ea1b7618e70ce9b338ad402488a66f214b2d1e33ad7f7ee5c0311b93e8")


def test_a_value_depends_on_seed_name_and_place_alone() -> None:
    key = synthetic.key(1, "x")
    whole = synthetic.uniform((40, 10), 1.0, key, "cpu")
    assert torch.equal(whole[:10], synthetic.uniform((10, 10), 1.0, key, "cpu"))
    assert not torch.equal(whole, synthetic.uniform((40, 10), 1.0, synthetic.key(2, "x"), "cpu"))
    assert not torch.equal(whole, synthetic.uniform((40, 10), 1.0, synthetic.key(1, "y"), "cpu"))


def test_blocks_are_a_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = synthetic.uniform((1000,), 1.0, 5, "cpu")
    monkeypatch.setattr(synthetic, "BLOCK", 64)
    assert torch.equal(whole, synthetic.uniform((1000,), 1.0, 5, "cpu"))


def test_the_generator_is_splitmix64() -> None:
    """The first outputs of SplitMix64 from state 1234567, as published with its reference code."""
    golden = 0x9E3779B97F4A7C15
    states = torch.tensor([synthetic._signed((1234567 + n * golden) % 2**64) for n in (1, 2, 3)])
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [value % 2**64 for value in synthetic._mix(states).tolist()] == expected


def test_values_are_uniform_with_the_deviation_asked_for() -> None:
    drawn = synthetic.uniform((500, 400), 0.5, synthetic.key(0, "x"), "cpu")
    assert abs(float(drawn.mean())) < 0.005 and abs(float(drawn.std()) - 0.5) < 0.005
    assert float(drawn.abs().max()) <= 0.5 * 3**0.5
    counts = torch.histc(drawn, bins=20)
    assert counts.min() > 9500 and counts.max() < 10500
    assert abs(float(torch.corrcoef(drawn[:2])[0, 1])) < 0.15


def test_arms_share_one_base_and_one_adapter(package: Package) -> None:
    assert package.lora
    base, pairs, merged = base_tensors(package), lora_tensors(package), tensors(package)
    assert list(base) == list(merged) and set(pairs) == set(package.lora.modules)
    for name in base:
        module = name.removesuffix(".weight")
        if module in pairs:
            a, b = pairs[module]
            update = package.lora.scaling * (b.double() @ a.double())
            assert torch.equal(merged[name], (base[name].double() + update).float()), name
            assert 0.05 < float(update.std() / base[name].std()) < 0.25, name
        else:
            assert torch.equal(merged[name], base[name]), name


def test_bfloat16_starts_from_a_base_that_is_bfloat16(package: Package) -> None:
    name = "layers.0.linear_attn.in_proj_qkv.weight"
    a, b = lora_tensors(package)["layers.0.linear_attn.in_proj_qkv"]
    base = base_tensors(package, dtype="bfloat16")
    assert base[name].dtype == torch.bfloat16
    expected = (base[name].double() + 2.0 * (b.double() @ a.double())).bfloat16()
    assert torch.equal(tensors(package, dtype="bfloat16")[name], expected)
    kept = {
        key.rsplit(".", 2)[-2] + "." + key.rsplit(".", 1)[-1] for key, t in base.items() if t.dtype == torch.float32
    }
    assert kept == {"linear_attn.A_log", "norm.weight"} and base["norm.weight"].dtype == torch.bfloat16


def test_heads_remember_from_tens_to_thousands_of_tokens(package: Package) -> None:
    base = base_tensors(package)
    rates = torch.cat(
        [
            base[f"layers.{i}.linear_attn.A_log"].exp()
            * torch.nn.functional.softplus(base[f"layers.{i}.linear_attn.dt_bias"])
            for i in (0, 1, 2, 4, 5, 6)
        ]
    )
    assert float(rates.min()) >= 1e-4 and float(rates.max()) <= 4.04e-2
    assert float(rates.max() / rates.min()) > 10


def test_a_synthetic_model_is_sane_and_has_opinions() -> None:
    """Different texts before one ending, as prompts are: scores spread, and no layer shrinks or explodes."""
    from openjev_lab.hf import MergedHF

    arm = MergedHF("synthetic:tiny?seed=3")
    generator = torch.Generator().manual_seed(0)
    texts = [torch.randint(5, 300, (30 + 5 * i,), generator=generator).tolist() for i in range(10)]
    scores = torch.tensor([arm.score(text + list(range(100, 120))) for text in texts])
    assert 0.4 < float(scores.std()) < 2.0 and abs(float(scores.mean())) < 2.0
    deviations = [float(state.std()) for state in arm.hidden_states(texts[0])]
    assert all(0.5 < deviation < 1.5 for deviation in deviations)


@pytest.mark.gpu
def test_a_gpu_makes_the_same_bits(package: Package) -> None:
    for dtype in ("float32", "bfloat16"):
        here, there = tensors(package, "cpu", dtype), tensors(package, "cuda", dtype)
        assert all(torch.equal(here[name], there[name].cpu()) for name in here)
