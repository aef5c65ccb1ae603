"""What a checkpoint is to the rest of the project: one ``Package``, whatever it was opened from.

A package folder, a merged export and synthetic weights all become this: everything about a checkpoint but its weights.
Apart from ``load``, which makes it, and from ``tensors``, which reads or makes the weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from openjev_lab.checkpoint.base import Base
from openjev_lab.checkpoint.files import sha256
from openjev_lab.checkpoint.lora import Adapter, Lora
from openjev_lab.geometry import Geometry

if TYPE_CHECKING:
    from torch import Tensor

MAX_LENGTH_TOKENS = 16384
"""More than this no candidate may have, whatever a checkpoint saved."""
FAMILY_ALIASES = ("open-jev", "jev-latest")
PUBLISHED_ALIASES = {
    ("Qwen/Qwen3.8-27B", "1d4bf0f2ff6012fd82039f2fa52739d0dd7c60c0"): "open-jev-27b-v1.1",
    ("Qwen/Qwen3.5-9B", "c202236235762e1c871ad0ccb60c8ee5ba337b9a"): "open-jev-9b",
}
"""(base, its pinned revision) -> the alias its released checkpoint answers to (System1-Omni, recipe/open_jev)."""


@dataclass(frozen=True, slots=True, eq=False)
class Package:
    """A checkpoint without its weights; ``checkpoint.tensors`` reads or makes those."""

    path: str
    """As given: a folder, or the spec of a synthetic one."""
    kind: Literal["package", "merged", "synthetic"]
    model_id: str
    """The base model's name, which answers carry."""
    revision: str
    """The checkpoint's own: a commit where a hub's download says so, else a SHA-256 of its content."""
    base_revision: str
    geometry: Geometry
    tokenizer_dir: Path
    """The folder with tokenizer.json and the chat template."""
    head_weight: Tensor
    """(hidden,), float32, on the CPU."""
    head_bias: float
    temperature: float
    max_length: int
    """Most tokens a candidate may have."""
    aliases: tuple[str, ...]
    """Every model name that a request may give."""
    lora: Lora | None
    """None once merged."""
    base: Base | None = None
    """The folder that the (base or merged) weights come from; None if synthetic."""
    adapter: Adapter | None = None
    seed: int | None = None
    """Of a synthetic package."""

    @property
    def base_dir(self) -> Path | None:
        """Where the base's, or the merged, weights are."""
        return self.base.folder if self.base else None

    @property
    def adapter_dir(self) -> Path | None:
        """Where the adapter is."""
        return self.adapter.folder if self.adapter else None

    def content_hashes(self) -> dict[str, str]:
        """File, relative to the package -> its SHA-256, sorted; {} if synthetic, whose path says everything.

        Reads every file: seconds a gigabyte.
        """
        if self.kind == "synthetic":
            return {}
        root = Path(self.path)
        folders = [root / "base", root / "checkpoint"] if self.kind == "package" else [root]
        return {str(path.relative_to(root)): sha256(path) for folder in folders for path in visible_files(folder)}


def visible_files(folder: Path) -> list[Path]:
    """The regular files below a folder, in order, without hidden ones (a hub's download cache)."""
    every = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in every if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def aliases(model_id: str, base_revision: str, geometry: Geometry) -> tuple[str, ...]:
    """The names that a request may use: the base's, the family's, the checkpoint's own."""
    own = PUBLISHED_ALIASES.get((model_id, base_revision), f"open-jev-{geometry.name}")
    return (model_id, *FAMILY_ALIASES, own)
