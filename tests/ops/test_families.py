"""Finding kernels by path: what is dropped in is found, what is asked for runs or is refused with its reason.

python -m pytest tests/ops/test_families.py
"""

import shutil
from pathlib import Path

import pytest

from openjev_lab.errors import LabError
from openjev_lab.forward import OPS
from openjev_lab.geometry import KNOWN
from openjev_lab.ops import families

TINY = KNOWN["tiny"]
COPY = """\"\"\"A variant that somebody dropped in.\"\"\"
from openjev_lab.ops.contract import anywhere
BACKEND = "torch"
supports = anywhere
def bind(geometry, io):
    return lambda tokens: io["out"][:tokens].zero_()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A kernels folder of one family without variants."""
    folder = tmp_path / "kernels" / "silu_mul"
    folder.mkdir(parents=True)
    shutil.copy(families.KERNELS / "silu_mul" / "family.py", folder)
    (tmp_path / "kernels" / "include").mkdir()
    return tmp_path / "kernels"


def test_every_op_of_the_forward_is_a_family_with_a_torch_variant() -> None:
    assert set(families.family_names()) == set(OPS)
    for name in OPS:
        variants = families.load_family(name).variants().values()
        assert any(variant.backend == "torch" for variant in variants), name
        assert all(variant.summary for variant in variants)


def test_a_dropped_in_file_is_found_and_a_saved_change_is_seen(root: Path) -> None:
    family = families.load_family("silu_mul", root)
    assert families.family_names(root) == ["silu_mul"] and family.variants() == {}
    path = root / "silu_mul" / "torch_mine.py"
    path.write_text(COPY)
    (variant,) = family.variants().values()
    assert (variant.name, variant.backend) == ("torch_mine", "torch")
    assert variant.summary == "A variant that somebody dropped in."
    path.write_text(COPY.replace("dropped in", "changed") + "MARK = 1\n")
    assert family.variant("torch_mine").module.MARK == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_like_this\n", "can't be loaded: ModuleNotFoundError"),
        ("def bind(:\n", "can't be loaded: SyntaxError"),
        (COPY.replace("bind", "bound"), "does not define bind"),
        (COPY.replace('"torch"', '"numba_cpu"'), "BACKEND is 'numba_cpu'"),
        (COPY.replace('"torch"', '"cobol"'), "BACKEND is 'cobol'"),
    ],
)
def test_a_faulty_file_is_named(root: Path, text: str, words: str) -> None:
    (root / "silu_mul" / "torch_mine.py").write_text(text)
    with pytest.raises(LabError, match=words) as caught:
        families.load_family("silu_mul", root).variant("torch_mine")
    assert "torch_mine.py" in str(caught.value)


def test_a_family_without_its_contract_is_refused(root: Path) -> None:
    (root / "silu_mul" / "family.py").write_text("SUMMARY = 'nothing else'\n")
    with pytest.raises(LabError, match="does not define INPUTS, OUTPUTS"):
        families.load_family("silu_mul", root)


def test_unknown_names_are_answered_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no kernel family 'sliu_mul'; there are .*silu_mul"):
        families.load_family("sliu_mul")
    for name in ("numba_cpu_scalr", "family"):
        with pytest.raises(LabError, match=f"no variant '{name}'; it has .*numba_cpu_scalar"):
            families.load_family("silu_mul").variant(name)
    with pytest.raises(LabError, match="read from a checkout"):
        families.family_names(tmp_path / "nowhere")


def test_selection_refuses_instead_of_falling_back() -> None:
    with pytest.raises(
        LabError, match="can't run tiny in bfloat16 on cpu: Numba has no bfloat16.*here torch_eager can"
    ):
        families.select("silu_mul", "numba_cpu_packed8", TINY, "cpu", "bfloat16")
    chosen = families.select_all({"silu_mul": "torch_eager", "embed": "torch_gather"}, TINY, "cpu", "bfloat16")
    assert [variant.name for variant in chosen.values()] == ["torch_eager", "torch_gather"]
