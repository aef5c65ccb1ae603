"""What the witness demands of a forward: each promise, broken once.

python -m pytest tests/test_hf_witness.py
"""

import dataclasses
from typing import Any

import pytest

from openjev_lab.errors import LabError
from openjev_lab.geometry import KNOWN
from openjev_lab.hf_witness import FILE, Witness

LORA = "peft/tuners/lora/layer.py:Linear.forward"
GOOD = Witness(
    functions={
        f"{FILE}:torch_chunk_gated_delta_rule": 48,
        f"{FILE}:Qwen3_5RMSNormGated.forward": 48,
        LORA: 160,
        "transformers/utils/generic.py:wrapper": 7,
    },
    calls={"conv1d": 48, "scaled_dot_product_attention": 16},
    attention={"aten._scaled_dot_product_flash_attention.default": 16},
    strangers={},
)


def test_the_27b_promise() -> None:
    GOOD.require(KNOWN["27b"], lora_modules=160)


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "a library": ({"strangers": {"fla.ops.x.chunk": 1}}, r"entered \['fla.ops.x.chunk'\]; it must run torch's own"),
    "no delta rule": ({"functions": GOOD.functions | {f"{FILE}:torch_chunk_gated_delta_rule": 0}}, "delta rule ran 0"),
    "one norm less": ({"functions": GOOD.functions | {f"{FILE}:Qwen3_5RMSNormGated.forward": 47}}, "norm ran 47 .* 48"),
    "a module merged": ({"functions": GOOD.functions | {LORA: 159}}, "unmerged LoRA ran 159 times .* promises 160"),
    "no convolution": ({"calls": {"scaled_dot_product_attention": 16}}, "convolution ran 0 times"),
    "eager attention": ({"calls": {"conv1d": 48}}, "dot product attention ran 0 times in a forward; .* promises 16"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_named(name: str) -> None:
    changes, message = BROKEN[name]
    with pytest.raises(LabError, match=message):
        dataclasses.replace(GOOD, **changes).require(KNOWN["27b"], lora_modules=160)


def test_the_record_leaves_the_plumbing_out() -> None:
    record = GOOD.describe()
    assert LORA in record["functions"] and "transformers/utils/generic.py:wrapper" not in record["functions"]
    assert record["attention_kernels"] == GOOD.attention and record["torch_calls"] == GOOD.calls
