"""Open a checkpoint: a package folder, a merged export, or ``synthetic:GEOMETRY?seed=N`` becomes a ``Package``.

Each fault is one ``LabError`` that names the file and what would be right; what needs no weights is checked before any
is read. Apart because these checks are all of a package's rules, and nothing else needs to know them.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from openjev_lab.checkpoint.base import Base, open_base
from openjev_lab.checkpoint.export import open_export
from openjev_lab.checkpoint.files import integer_field, need_file, number_field, read_json, sha256, text_field
from openjev_lab.checkpoint.lora import MAX_RANK, Adapter, open_adapter, read_adapter
from openjev_lab.checkpoint.package import MAX_LENGTH_TOKENS, Package, aliases
from openjev_lab.checkpoint.synthetic import open_synthetic
from openjev_lab.errors import LabError

if TYPE_CHECKING:
    from torch import Tensor

MOVING = {"main", "master", "head", "latest"}
"""Revisions that pin nothing."""
DECIDING = (
    "model.json",
    "temperature.json",
    "head.pt",
    "adapter/adapter_config.json",
    "adapter/adapter_model.safetensors",
)
"""The files of ``checkpoint/`` that decide answers; their content is its revision where no hub gave one."""


def load_package(path: str | Path) -> Package:
    """Open a checkpoint. Raises ``LabError`` for the first fault found."""
    if str(path).startswith("synthetic:"):
        return open_synthetic(str(path))
    folder = Path(path)
    if not folder.is_dir():
        raise LabError(
            f"{folder} is no folder; a checkpoint is a package, a merged export or synthetic:GEOMETRY?seed=N"
        )
    parts = [name for name in ("base", "checkpoint") if (folder / name).is_dir()]
    if len(parts) == 1:
        raise LabError(f"{folder} has {parts[0]}/ only; a package holds base/ and checkpoint/")
    return _open_package(folder) if parts else open_export(folder)


def _open_package(folder: Path) -> Package:
    base_dir, checkpoint = folder / "base", folder / "checkpoint"
    model_file = checkpoint / "model.json"
    model = read_json(model_file, "it names the base, the revision, the adapter's rank and the longest prompt")
    model_id, base_revision = text_field(model_file, model, "model_id"), text_field(model_file, model, "revision")
    text_field(model_file, model, "method")
    if base_revision.lower() in MOVING:
        raise LabError(f"{model_file}: revision {base_revision!r} moves; it must pin the base: a commit or a hash")
    rank = integer_field(model_file, model, "lora_rank", 1, MAX_RANK)
    max_length = integer_field(model_file, model, "max_length", 1, MAX_LENGTH_TOKENS)
    temperature_file = checkpoint / "temperature.json"
    temperature_json = read_json(temperature_file, 'it is {"temperature": number}')
    temperature = number_field(temperature_file, temperature_json, "temperature", positive=True)
    base = open_base(base_dir)
    need_file(base_dir / "tokenizer.json", "a base holds its tokenizer")
    adapter = open_adapter(checkpoint / "adapter", base.geometry, rank)
    _check_base_revision(base, adapter, base_revision, model_file)
    head_weight, head_bias = load_head(checkpoint / "head.pt", base.geometry.hidden)
    read_adapter(adapter, "cpu")  # some megabytes, so that a bad value is found before a server starts
    return Package(
        path=str(folder),
        kind="package",
        model_id=model_id,
        revision=_download_commit(model_file) or _content_revision([checkpoint / name for name in DECIDING]),
        base_revision=base_revision,
        geometry=base.geometry,
        tokenizer_dir=base_dir,
        head_weight=head_weight,
        head_bias=head_bias,
        temperature=temperature,
        max_length=max_length,
        aliases=aliases(model_id, base_revision, base.geometry),
        lora=adapter.lora,
        base=base,
        adapter=adapter,
    )


def load_head(path: Path, hidden: int) -> tuple[Tensor, float]:
    """``head.pt`` as ((hidden,) float32, bias); tensors only, never code."""
    import torch

    need_file(path, 'it is the trained head, {"weight": (1, hidden), "bias": (1,)}')
    try:
        head = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and torch each raise their own
        raise LabError(
            f"{path} cannot be read as tensors alone ({type(error).__name__}); save it with torch.save from a plain"
            ' {"weight": tensor, "bias": tensor}, without code in it'
        ) from None
    wanted = {"weight": (1, hidden), "bias": (1,)}
    if not isinstance(head, dict) or set(head) != set(wanted):
        holds = sorted(map(str, head)) if isinstance(head, dict) else type(head).__name__
        raise LabError(f"{path} holds {holds}; a dict of exactly weight and bias is right")
    for name, shape in wanted.items():
        value = head[name]
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or tuple(value.shape) != shape:
            is_ = f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
            raise LabError(f"{path}: {name} is {is_}; a floating-point tensor of shape {list(shape)} is right")
        if not torch.isfinite(value).all():
            raise LabError(f"{path}: {name} holds values that are not finite; train or copy the head again")
    return head["weight"].detach().float().reshape(-1).clone(), float(head["bias"])


def _check_base_revision(base: Base, adapter: Adapter, revision: str, model_file: Path) -> None:
    """Compare what model.json pins with every place that states what the base is."""
    stated: dict[str, tuple[str | None, ...]] = {
        f"{base.folder} (its weights' metadata)": base.revisions,
        f"{adapter.folder / 'adapter_config.json'}": (adapter.base_revision,),
        f"{base.folder} (as downloaded)": (_download_commit(base.folder / "config.json"),),
    }
    if revision.startswith("sha256:"):
        stated[f"{base.folder} (its weights' content)"] = (_content_revision(sorted(base.files)),)
    for where, said in ((where, said) for where, all_said in stated.items() for said in all_said):
        if said is not None and said != revision:
            raise LabError(f"{model_file} pins base revision {revision}, {where} says {said}; use the pinned base")


def _download_commit(file: Path) -> str | None:
    """The commit that huggingface_hub recorded for a downloaded file, None if it was not downloaded so.

    In a cache the folder ``snapshots/COMMIT`` says it, in a ``--local-dir`` download the first line of
    ``.cache/huggingface/download/FILE.metadata``.
    """
    real = file.absolute().parent.resolve() / file.name
    if real.parent.parent.name == "snapshots" and re.fullmatch(r"[0-9a-f]{40}", real.parent.name):
        return real.parent.name
    for parent in real.parents:
        record = parent / ".cache/huggingface/download" / real.relative_to(parent).with_name(f"{real.name}.metadata")
        if record.is_file():
            return record.read_text(encoding="utf-8").split("\n", 1)[0].strip() or None
    return None


def _content_revision(files: list[Path]) -> str:
    """``sha256:`` and the hash of one file, or of the lines that ``sha256sum`` would write for several."""
    if len(files) == 1:
        return f"sha256:{sha256(files[0])}"
    lines = "".join(f"{sha256(file)}  {file.name}\n" for file in files)
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
