"""The code behind a rung, read from its files without importing them: a difference where something was replaced.

Takes a rung and a device; returns text. Apart from ``checks``, which runs that code.
"""

from __future__ import annotations

import ast
from pathlib import Path

from openjev_lab import rungs
from openjev_lab.errors import LabError
from openjev_lab.notebook.parameters import ROOT
from openjev_lab.notebook.show import Text, code, diff

PACKAGE = ROOT / "openjev_lab"


def changed(rung: rungs.Rung, device: str) -> Text:
    """What the rung's code is; for a rung that swaps kernels, each against the one that it replaces."""
    if rung.kind == "hf-raw":
        return code(definition(PACKAGE / "hf.py", "RawHF"))
    if rung.kind == "hf-merged":
        return diff(
            definition(PACKAGE / "hf.py", "RawHF"), definition(PACKAGE / "hf.py", "MergedHF"), "RawHF", "MergedHF"
        )
    if "ops" in rung.change:
        swapped = changed_ops(rung, device)
        return Text("\n\n".join(_variants(op, before or "", after) for op, (before, after) in swapped.items()))
    return code(definition(PACKAGE / "forward.py", "plan"))


def changed_ops(rung: rungs.Rung, device: str) -> dict[str, tuple[str | None, str]]:
    """Op -> (variant of the rung below, variant of this one) where they differ; None where the one below has no ops."""
    below = rungs.resolve(rung.base, device).ops if rung.base else {}
    own = rungs.resolve(rung.name, device).ops
    return {op: (below.get(op), name) for op, name in own.items() if below.get(op) != name}


def _variants(op: str, before: str, after: str) -> str:
    from openjev_lab.ops.families import load_family

    family = load_family(op)
    old, new = (family.variant(name).path.read_text() for name in (before, after))
    return f"**{op}**\n\n{diff(old, new, f'{op}/{before}', f'{op}/{after}').markdown}"


def definition(path: Path, name: str) -> str:
    """The source of a top-level class or function of a file; LabError if it has none of that name."""
    text = path.read_text()
    for node in ast.parse(text).body:
        if getattr(node, "name", None) == name:
            return ast.get_source_segment(text, node) or ""
    raise LabError(f"{path.name} defines no {name}")
