"""The engine on the CPU: hidden state by hidden state against transformers, growing buffers, faults in the weights.

python -m pytest tests/test_engine.py
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openjev_lab import rungs
from openjev_lab.checkpoint import load_package, tensors
from openjev_lab.engine import ROW_STEP, Engine
from openjev_lab.errors import LabError
from openjev_lab.forward import OPS
from openjev_lab.geometry import KNOWN, Geometry

TINY = KNOWN["tiny"]
# The 27B model's ratios: six query heads a key head, three value heads a key head, rotary on a quarter.
RATIOS = replace(TINY, name="ratios", heads=6, kv_heads=1, head_dim=64, rotary_dim=16, linear_k_dim=32, linear_v_dim=32)
PLAIN = {
    "embed": "torch_gather",
    "linear": "torch_mm",
    "gated_delta": "torch_chunked",
    "attention": "torch_sdpa",
    **dict.fromkeys(("add_rmsnorm", "gdn_input", "gated_norm", "qk_norm_rope", "silu_mul", "head"), "torch_eager"),
}
LADDER_OPS = {name: dict(rungs.resolve(name).ops) for name in ("scalar", "packed-silu")} | {"plain": PLAIN}
RELATIVE = 5e-6
"""Largest difference of a hidden state, relative to that state's largest value; float32 gives about 1e-6 here."""


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=[TINY, RATIOS], ids=lambda geometry: geometry.name)
def model(request: pytest.FixtureRequest) -> Any:
    """transformers' text model with random weights, none of them at a value that hides a mistake."""
    from transformers import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5TextModel

    torch.manual_seed(0)
    text = Qwen3_5TextModel(Qwen3_5TextConfig(**request.param.to_config(), attn_implementation="sdpa")).eval()
    for name, parameter in text.named_parameters():
        if "norm" in name:
            parameter.data.normal_(1.0 if "linear_attn.norm" in name else 0.0, 0.2)
        elif "dt_bias" in name:
            parameter.data.uniform_(-6, 1)
        else:
            parameter.data.mul_(2)
    return text.requires_grad_(False)


def weights(text: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in text.state_dict().items()}


def engine_of(text: Any, ops: dict[str, str], **settings: Any) -> Engine:
    geometry = Geometry.from_config(text.config.to_dict())
    head = torch.linspace(-1, 1, geometry.hidden)
    return Engine(geometry, weights(text), head, 0.25, ops=ops, **settings)


def some_ids(tokens: int, seed: int = 0) -> list[int]:
    return torch.randint(TINY.vocab_size, (tokens,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("ops", LADDER_OPS)
def test_hidden_states_are_those_of_transformers(model: Any, ops: str) -> None:
    engine = engine_of(model, LADDER_OPS[ops])
    for tokens in (1, 63, 64, 65, 107):
        ids = some_ids(tokens, seed=tokens)
        with torch.inference_mode():
            out = model(input_ids=torch.tensor([ids]), use_cache=False, output_hidden_states=True)
        wanted = [state[0] for state in out.hidden_states[1:-1]]  # the last one of transformers is normed
        *found, last = engine.hidden_states(ids)
        assert len(found) == TINY.layers
        for layer, (ours, theirs) in enumerate(zip(found, wanted, strict=False)):
            assert (ours - theirs).abs().max() <= RELATIVE * theirs.abs().max(), (tokens, layer)
        final = out.last_hidden_state[0, -1]
        assert (last - final).abs().max() <= RELATIVE * final.abs().max()
        head = torch.linspace(-1, 1, engine.geometry.hidden).double()
        assert engine.score(ids) == pytest.approx(float(final.double() @ head) + 0.25, abs=2e-4)


@pytest.fixture(scope="module")
def engine() -> Engine:
    package = load_package("synthetic:tiny?seed=3")
    ops = rungs.resolve("packed-silu").ops
    return Engine(TINY, tensors(package), package.head_weight, package.head_bias, ops=ops)


@pytest.fixture(scope="module")
def plain() -> Engine:
    """The same weights through plain torch alone."""
    package = load_package("synthetic:tiny?seed=3")
    return Engine(TINY, tensors(package), package.head_weight, package.head_bias, ops=PLAIN)


@settings(max_examples=40, deadline=None)
@given(tokens=st.integers(1, 200) | st.sampled_from([1, 63, 64, 65, 127, 128, 129]), seed=st.integers(0, 9))
def test_kernels_agree_with_plain_torch_at_any_length(engine: Engine, plain: Engine, tokens: int, seed: int) -> None:
    ids = some_ids(tokens, seed)
    assert engine.score(ids) == pytest.approx(plain.score(ids), abs=1e-4)


def test_buffers_grow_with_the_longest_request_and_scores_do_not_change(engine: Engine) -> None:
    short, long = some_ids(40, seed=1), some_ids(ROW_STEP + 1, seed=2)
    assert engine.rows == ROW_STEP
    first = engine.score(short)
    assert engine.score(long) == engine.score(long)
    assert engine.rows == 2 * ROW_STEP
    assert engine.score(short) == first, "what an earlier request left behind was seen"
    engine.reserve(10)
    assert engine.rows == 2 * ROW_STEP, "buffers never shrink"


def test_a_score_depends_on_every_token_and_their_order(engine: Engine) -> None:
    ids = some_ids(70, seed=4)
    scores = {engine.score(ids), engine.score(ids[::-1]), engine.score(ids[1:])}
    scores |= {engine.score([*ids[:place], (ids[place] + 1) % TINY.vocab_size, *ids[place + 1 :]]) for place in (0, 69)}
    assert len(scores) == 5


@pytest.mark.parametrize("ids", [[], [TINY.vocab_size], [3, -1]])
def test_ids_that_are_none_are_refused(engine: Engine, ids: list[int]) -> None:
    with pytest.raises(LabError, match="at least one token|token ids must be in 0..999"):
        engine.score(ids)


def test_step_times_name_every_step(engine: Engine) -> None:
    times = engine.step_times(some_ids(30))
    assert len(times) == engine.describe()["steps"] == 2 + 8 * 5 + 6 * 5 + 2 * 4
    assert {op for op, _, _ in times} == set(OPS) and all(nanoseconds > 0 for _, _, nanoseconds in times)


def test_describe_says_what_runs(engine: Engine) -> None:
    told = json.loads(json.dumps(engine.describe()))
    assert told["ops"]["silu_mul"] == {
        "variant": "numba_cpu_packed8",
        "backend": "numba_cpu",
        "file": "kernels/silu_mul/numba_cpu_packed8.py",
    }
    assert set(told["ops"]) == set(OPS) and {"torch", "numba", "python"} <= set(told["versions"])


def test_plain_torch_serves_bfloat16_too(engine: Engine) -> None:
    package = load_package("synthetic:tiny?seed=3")
    rounded = Engine(
        TINY, tensors(package, dtype="bfloat16"), package.head_weight, package.head_bias, ops=PLAIN, dtype="bfloat16"
    )
    ids = some_ids(50, seed=6)
    *ours, last = rounded.hidden_states(ids)
    *exact, exact_last = engine.hidden_states(ids)
    for found, wanted in zip([*ours, last], [*exact, exact_last], strict=True):
        assert found.dtype == torch.bfloat16
        assert (found - wanted).norm() < 0.05 * wanted.norm()


def test_every_op_needs_a_variant_that_can_serve() -> None:
    few = {op: variant for op, variant in PLAIN.items() if op != "head"}
    with pytest.raises(LabError, match="a variant for each of"):
        Engine(TINY, {}, torch.zeros(128), 0.0, ops=few)
    with pytest.raises(LabError, match="silu_mul/numba_cpu_scalar can't run tiny in bfloat16 on cpu"):
        Engine(TINY, {}, torch.zeros(128), 0.0, ops=PLAIN | {"silu_mul": "numba_cpu_scalar"}, dtype="bfloat16")
