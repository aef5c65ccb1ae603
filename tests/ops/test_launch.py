"""A ``.cu`` variant says why it can't run here before anything is compiled or loaded; launches are tested on a GPU."""

import pytest

from openjev_lab.geometry import KNOWN
from openjev_lab.ops import tensormap
from openjev_lab.ops.families import load_family


@pytest.mark.parametrize(
    ("geometry", "device", "dtype", "reason"),
    [
        ("27b", "cpu", "bfloat16", "cuda_wgmma.cu is CUDA C++ and needs a CUDA device"),
        ("27b", "cuda:0", "float32", "cuda_wgmma.cu serves bfloat16 only"),
        ("tiny", "cuda:0", "bfloat16", "cuda_wgmma.cu needs linear_k_dim == 128 and linear_v_dim == 128"),
    ],
)
def test_says_what_it_needs(geometry: str, device: str, dtype: str, reason: str) -> None:
    variant = load_family("gated_delta").variant("cuda_wgmma")
    assert variant.backend == "cuda"
    assert variant.supports(KNOWN[geometry], device, dtype) == (False, reason)


def test_says_that_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    variant = load_family("gated_delta").variant("cuda_wgmma")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert variant.supports(KNOWN["27b"], "cuda:0", "bfloat16")[1].endswith("PyTorch sees none")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert variant.supports(KNOWN["27b"], "cuda:0", "bfloat16") == (
        False,
        "cuda_wgmma.cu is written for sm_90a, this device is sm_80",
    )
    assert load_family("silu_mul").variant("cuda_packed8").supports(KNOWN["27b"], "cuda:0", "bfloat16") == (True, "")


def test_tensor_map_refuses_what_is_not_rows_of_two_bytes() -> None:
    import torch

    with pytest.raises(ValueError, match="contiguous 2-byte rows"):
        tensormap.encode(torch.zeros(4, 128), (1, 128), (64, 1, 64))
