"""What a ``.cu`` file says about itself: read, evaluated, and refused where it is wrong; on any machine."""

import subprocess
import sys
from pathlib import Path

import pytest

from openjev_lab.errors import LabError
from openjev_lab.geometry import KNOWN
from openjev_lab.ops import directives

PATH = Path("kernels/demo/cuda_demo.cu")
TEXT = """// Doubles rows.
//
//@ arch: sm_80
//@ require: hidden % 8 == 0
//@ require: head_dim == 256
//@ define: HIDDEN = hidden
//@ scratch: partial = float32, cdiv(rows(x), 64) * heads
//@ tensormap: v_map = qkv, (kv_heads, head_dim), (64, 1, 64), v_offset
//@ kernel: prepare
//@ grid: heads, cdiv(T, 64)
//@ block: 128
//@ smem: 2 * max(64, head_dim) * 4
//@ args: x, partial, eps, T
//@ kernel: finish
//@ grid: T
//@ block: 32 * kv_heads
//@ args: partial, max(heads, 1), v_map
#include "rows.cuh"
"""


def test_reads_every_directive() -> None:
    source = directives.parse(TEXT, PATH)
    names = directives.names_of(KNOWN["27b"]) | {"rows": len, "x": range(130)}
    assert source.archs == ("sm_80", "sm_90a") and source.dtype == "bfloat16"
    assert source.defines["HIDDEN"](names) == 5120
    dtype, elements = source.scratch["partial"]
    assert (dtype, elements(names)) == ("float32", 3 * 24)
    buffer, shape = source.maps["v_map"]
    assert (buffer, shape(names)) == ("qkv", ((4, 256), (64, 1, 64), 13312))
    prepare, finish = source.kernels
    assert prepare.grid(names | {"T": 65}) == (24, 2) and prepare.block(names) == 128 and prepare.smem(names) == 2048
    assert [argument.text for argument in prepare.args] == ["x", "partial", "eps", "T"]
    assert finish.grid(names | {"T": 65}) == (65,) and finish.block(names) == 128 and finish.smem(names) == 0
    assert [argument.text for argument in finish.args] == ["partial", "max(heads, 1)", "v_map"]


def test_requirements_name_what_is_missing() -> None:
    source = directives.parse(TEXT, PATH)
    assert source.unmet(KNOWN["27b"]) == ""
    assert source.unmet(KNOWN["tiny"]) == "head_dim == 256"


def test_hopper_only_source_is_compiled_for_hopper_alone() -> None:
    assert directives.parse(TEXT.replace("sm_80", "sm_90a"), PATH).archs == ("sm_90a",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("//@ smem:", "//@ smen:", "smen: 2 .* is no directive"),
        ("//@ kernel: prepare\n", "", "stands before any"),
        ("//@ block: 128\n", "", 'kernel prepare has no "//@ block:" directive'),
        ("cdiv(T, 64)\n", "cdiv(T, 64\n", "is no expression"),
        ("HIDDEN = hidden", "HIDDEN hidden", 'must have the form "NAME = ..."'),
    ],
)
def test_refuses_what_it_cannot_read(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(LabError, match=message) as caught:
        directives.parse(TEXT.replace(old, new, 1), PATH)
    assert str(PATH) in str(caught.value)


def test_source_without_kernel_is_refused() -> None:
    with pytest.raises(LabError, match='needs a "//@ kernel:" directive'):
        directives.parse("// nothing here\n", PATH)


def test_reading_directives_imports_nothing_heavy() -> None:
    code = "import sys, openjev_lab.ops.directives; print({'torch', 'cupy', 'cuda'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
