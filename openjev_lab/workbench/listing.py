"""What kernels there are: every family with its formula, every variant with whether it can run here, or why not.

Takes a ``Place``; returns plain dicts, and text made of them. Apart from ``checking`` because nothing is run for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from openjev_lab.errors import LabError
from openjev_lab.notebook.show import table
from openjev_lab.ops.families import KERNELS, family_names, load_family
from openjev_lab.workbench.targets import Place, members


def listing(where: Place, root: Path = KERNELS) -> list[dict[str, Any]]:
    """A dict a family: family, formula, exact (groups of equal bits), variants (a dict each)."""
    found = []
    for name in family_names(root):
        family = load_family(name, root)
        rows = []
        for variant, it in members(family).items():
            if isinstance(it, LabError):
                row = {"backend": None, "summary": None, "runs": False, "reason": str(it)}
            else:
                able, reason = it.supports(where.geometry, where.device, where.dtype)
                row = {"backend": it.backend, "summary": it.summary, "runs": able, "reason": reason}
            rows.append({"variant": variant, **row})
        exact = [list(group) for group in family.module.EXACT]
        found.append({"family": name, "formula": family.module.SUMMARY, "exact": exact, "variants": rows})
    return found


def text(found: Sequence[Mapping[str, Any]], where: Place) -> str:
    """The listing for a terminal."""
    blocks = [f"Kernels for {where}"]
    for family in found:
        rows = [
            {
                "variant": row["variant"],
                "backend": row["backend"],
                "here": "runs" if row["runs"] else row["reason"],
                "summary": row["summary"],
            }
            for row in family["variants"]
        ]
        shown = table(rows).markdown if rows else "no variants"
        blocks.append(f"{family['family']}: {family['formula']}\n{shown}")
    return "\n\n".join(blocks)
