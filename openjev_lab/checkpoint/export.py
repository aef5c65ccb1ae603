"""The merged export: its marker file, and opening a folder that has one.

Takes a folder; returns a ``Package`` whose weights need no adapter. The marker, ``open_jev_export.json``, is written
last, so a folder without it is incomplete, and is refused. Apart because ``merge`` writes what this reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from openjev_lab.checkpoint.base import open_base
from openjev_lab.checkpoint.files import integer_field, need_file, number_field, read_json, sha256, shown, text_field
from openjev_lab.checkpoint.package import MAX_LENGTH_TOKENS, Package, aliases
from openjev_lab.errors import LabError

if TYPE_CHECKING:
    from torch import Tensor

MARKER, FORMAT = "open_jev_export.json", "open-jev-text-merged/1"
HASHED_AT_LOAD_BYTES = 1 << 26
"""Files up to this size are hashed when an export is opened; of larger ones the size is compared."""


def open_export(folder: Path) -> Package:
    """Open a merged export, ours or System1-Omni's. Raises ``LabError`` for the first fault found."""
    marker = folder / MARKER
    if not marker.is_file():
        raise LabError(
            f"{folder} has no {MARKER}, which a merge writes last: the export is incomplete, or this is a plain base;"
            " merge again, or give a package with base/ and checkpoint/"
        )
    values = read_json(marker, "it describes a merged export")
    if values.get("format") != FORMAT:
        raise LabError(f"{marker}: format is {shown(values, 'format')}; this version reads {FORMAT!r}")
    for name in ("chat_prefix", "chat_suffix"):
        if not isinstance(values.get(name), str):
            raise LabError(f"{marker}: {name} is {shown(values, name)}; it must be the chat template's text")
    _check_files(marker, values)
    base = open_base(folder)
    need_file(folder / "tokenizer.json", "an export holds its tokenizer")
    model_id, base_revision = text_field(marker, values, "model_id"), text_field(marker, values, "base_revision")
    return Package(
        path=str(folder),
        kind="merged",
        model_id=model_id,
        revision=text_field(marker, values, "checkpoint_revision"),
        base_revision=base_revision,
        geometry=base.geometry,
        tokenizer_dir=folder,
        head_weight=_head_weight(marker, values, base.geometry.hidden),
        head_bias=number_field(marker, values, "head_bias"),
        temperature=number_field(marker, values, "temperature", positive=True),
        max_length=integer_field(marker, values, "max_length", 1, MAX_LENGTH_TOKENS),
        aliases=aliases(model_id, base_revision, base.geometry),
        lora=None,
        base=base,
    )


def _head_weight(marker: Path, values: dict[str, Any], hidden: int) -> Tensor:
    import torch

    head = values.get("head_weight")
    if not isinstance(head, list) or len(head) != hidden or not all(isinstance(value, float | int) for value in head):
        raise LabError(f"{marker}: head_weight must be a list of {hidden} numbers, one a hidden channel")
    weight = torch.tensor(head, dtype=torch.float32)
    if not torch.isfinite(weight).all():
        raise LabError(f"{marker}: head_weight holds values that are not finite in float32")
    return weight


def _check_files(marker: Path, values: dict[str, Any]) -> None:
    """Each file that the marker lists (other makers' markers list none): there, of its size, and its hash if small."""
    listed = values.get("files", {})
    if not isinstance(listed, dict) or not all(isinstance(entry, dict) for entry in listed.values()):
        raise LabError(f"{marker}: files must be an object of file names to their bytes and sha256")
    for name, entry in listed.items():
        path = need_file(marker.parent / name, f"{marker.name} lists it")
        size = path.stat().st_size
        if size != entry.get("bytes") or (size <= HASHED_AT_LOAD_BYTES and sha256(path) != entry.get("sha256")):
            raise LabError(f"{path} is not the file that {marker.name} was written for; merge again")
