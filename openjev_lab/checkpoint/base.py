"""The base model's folder: which tensors a geometry has, under whose names a folder holds them, and reading them.

Takes a Hugging Face folder (``config.json``; ``model.safetensors`` or an index and its shards); returns a ``Base``:
the text model's configuration, its geometry, and for every tensor of the text model the file that holds it, checked
by headers alone. Apart because a merged export and a package's ``base/`` are the same thing here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openjev_lab.checkpoint.files import FLOATING, Entry, few, need_file, read_header, read_json
from openjev_lab.errors import LabError
from openjev_lab.geometry import Geometry

if TYPE_CHECKING:
    from torch import Tensor

TEXT_TYPE = "qwen3_5_text"
PREFIXES = ("model.language_model.", "language_model.model.", "language_model.", "model.", "")
"""What may stand before the text model's names: inside a wrapper (two generations), a causal LM, the model alone."""
UNUSED = re.compile(r"(model\.|language_model\.)?(visual|lm_head|mtp)\.")
"""Tensors of a base that a decision never reads: the vision tower, the output head, the multi-token predictor."""
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def shapes(geometry: Geometry) -> dict[str, tuple[int, ...]]:
    """Every tensor of the text model, by transformers' name relative to it, in the order of the forward."""
    g = geometry
    found: dict[str, tuple[int, ...]] = {"embed_tokens.weight": (g.vocab_size, g.hidden)}
    for index, kind in enumerate(g.layer_types):
        layer: dict[str, tuple[int, ...]] = {"input_layernorm.weight": (g.hidden,)}
        layer |= _linear_attention(g) if kind == "linear_attention" else _full_attention(g)
        layer |= {
            "post_attention_layernorm.weight": (g.hidden,),
            "mlp.gate_proj.weight": (g.intermediate, g.hidden),
            "mlp.up_proj.weight": (g.intermediate, g.hidden),
            "mlp.down_proj.weight": (g.hidden, g.intermediate),
        }
        found |= {f"layers.{index}.{name}": shape for name, shape in layer.items()}
    return found | {"norm.weight": (g.hidden,)}


def _linear_attention(g: Geometry) -> dict[str, tuple[int, ...]]:
    return {
        "linear_attn.in_proj_qkv.weight": (g.conv_dim, g.hidden),
        "linear_attn.in_proj_z.weight": (g.value_dim, g.hidden),
        "linear_attn.in_proj_b.weight": (g.linear_v_heads, g.hidden),
        "linear_attn.in_proj_a.weight": (g.linear_v_heads, g.hidden),
        "linear_attn.conv1d.weight": (g.conv_dim, 1, g.conv_width),
        "linear_attn.dt_bias": (g.linear_v_heads,),
        "linear_attn.A_log": (g.linear_v_heads,),
        "linear_attn.norm.weight": (g.linear_v_dim,),
        "linear_attn.out_proj.weight": (g.hidden, g.value_dim),
    }


def _full_attention(g: Geometry) -> dict[str, tuple[int, ...]]:
    return {
        "self_attn.q_proj.weight": (2 * g.heads * g.head_dim, g.hidden),  # query and output gate, head by head
        "self_attn.k_proj.weight": (g.kv_heads * g.head_dim, g.hidden),
        "self_attn.v_proj.weight": (g.kv_heads * g.head_dim, g.hidden),
        "self_attn.q_norm.weight": (g.head_dim,),
        "self_attn.k_norm.weight": (g.head_dim,),
        "self_attn.o_proj.weight": (g.hidden, g.heads * g.head_dim),
    }


@dataclass(frozen=True, slots=True)
class Base:
    """A checked base folder; no tensor has been read."""

    folder: Path
    config: dict[str, Any]
    """The text model's own configuration, taken out of a wrapper's."""
    geometry: Geometry
    entries: dict[str, Entry]
    """Text-model name -> where it is stored, in the order of ``shapes``."""
    revisions: tuple[str, ...]
    """What the files themselves say about their revision (safetensors metadata), each once."""

    @property
    def files(self) -> set[Path]:
        """The safetensors files that hold the text model."""
        return {entry.file for entry in self.entries.values()}


def open_base(folder: Path) -> Base:
    """Check a folder's configuration and every header in it. Raises ``LabError`` for the first fault."""
    config_file = folder / "config.json"
    config = _text_config(config_file)
    try:
        geometry = Geometry.from_config(config)
    except LabError as error:
        raise LabError(f"{config_file}: {error}") from None
    stored, revisions = _stored(folder)
    return Base(folder, config, geometry, _matched(folder, stored, shapes(geometry)), revisions)


def _text_config(path: Path) -> dict[str, Any]:
    config = read_json(path, "it is the base model's configuration")
    inner = config.get("text_config")
    text = inner if isinstance(inner, dict) else config
    if text.get("model_type") != TEXT_TYPE:
        kind = text.get("model_type", config.get("model_type"))
        raise LabError(f"{path}: model_type is {kind!r}; it must be {TEXT_TYPE!r}, or a wrapper whose text_config is")
    return text


def _stored(folder: Path) -> tuple[dict[str, Entry], tuple[str, ...]]:
    """Every tensor in the folder by its key, from one file or from the shards that the index lists."""
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file() and index.is_file():
        raise LabError(f"{folder} has both {SINGLE} and {INDEX}; keep the one that belongs to the model")
    if not index.is_file():
        need_file(single, f"a base holds {SINGLE}, or {INDEX} and its shards")
        header = read_header(single)
        return header.entries, header.revisions
    where = read_json(index, "it says which shard holds which tensor").get("weight_map")
    if not isinstance(where, dict) or not where or not all(isinstance(name, str) for name in where.values()):
        raise LabError(f"{index}: weight_map is not an object of tensor names to file names; copy the index again")
    found: dict[str, Entry] = {}
    revisions: set[str] = set()
    for name in sorted(set(where.values())):
        if Path(name).name != name:
            raise LabError(f"{index} names the shard {name!r}; shards lie beside the index, so a bare name is right")
        header = read_header(need_file(folder / name, f"{index.name} lists it"))
        listed = {key for key, file in where.items() if file == name}
        if listed != set(header.entries):
            wrong = listed ^ set(header.entries)
            raise LabError(f"{folder / name} and {index.name} disagree about {few(wrong)}; copy both again")
        found |= header.entries
        revisions |= set(header.revisions)
    return found, tuple(sorted(revisions))


def _matched(folder: Path, stored: Mapping[str, Entry], wanted: Mapping[str, tuple[int, ...]]) -> dict[str, Entry]:
    """The text model's entries by its own names: none missing, none unexpected, shapes and dtypes right."""
    prefixes = [prefix for prefix in PREFIXES if f"{prefix}embed_tokens.weight" in stored]
    if len(prefixes) != 1:
        what = f"under {len(prefixes)} prefixes" if prefixes else "under no known prefix"
        raise LabError(f"{folder}: embed_tokens.weight is stored {what}; one of {list(PREFIXES)} is right")
    prefix = prefixes[0]
    entries = {key.removeprefix(prefix): entry for key, entry in stored.items() if key.startswith(prefix)}
    missing = set(wanted) - set(entries)
    if missing:
        raise LabError(f"{folder} lacks {few({prefix + name for name in missing})}; its config.json asks for them")
    outside = {key for key in stored if not key.startswith(prefix)} | {
        prefix + name for name in set(entries) - set(wanted)
    }
    unexpected = {key for key in outside if not UNUSED.match(key)}
    if unexpected:
        raise LabError(f"{folder} holds {few(unexpected)}, which its config.json has no place for")
    for name, shape in wanted.items():
        entry = entries[name]
        if entry.shape != shape:
            raise LabError(f"{entry.file}: {entry.key} is {list(entry.shape)}; config.json makes it {list(shape)}")
        if entry.dtype not in FLOATING:
            raise LabError(f"{entry.file}: {entry.key} is stored as {entry.dtype}; one of {list(FLOATING)} is right")
    return {name: entries[name] for name in wanted}


def read(entries: Mapping[str, Entry], device: str) -> Iterator[tuple[str, Tensor]]:
    """Each tensor in turn as stored, on ``device``. Raises ``LabError`` at the first value that is not finite."""
    import torch
    from safetensors import safe_open

    with ExitStack() as stack:
        files: dict[Path, Any] = {}
        for name, entry in entries.items():
            if entry.file not in files:
                files[entry.file] = stack.enter_context(safe_open(str(entry.file), framework="pt", device="cpu"))
            tensor = files[entry.file].get_tensor(entry.key).to(device)
            if not torch.isfinite(tensor).all():
                count = int((~torch.isfinite(tensor)).sum())
                raise LabError(f"{entry.file}: {entry.key} holds {count} values that are not finite; copy it again")
            yield name, tensor
