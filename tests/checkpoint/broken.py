"""Ways to break a copy of a checkpoint, one thing at a time. Used by the tests beside it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

Tensors = dict[str, Tensor]


def edit_json(path: Path, **changes: Any) -> None:
    """Set fields of a JSON object; ``...`` removes one."""
    value = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: field for name, field in value.items() if field is not ...}))


def edit_tensors(
    path: Path, change: Callable[[Tensors], Tensors | None], metadata: dict[str, str] | None = None
) -> None:
    """Read a safetensors file, let ``change`` alter or replace the dict, write it back."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    with safe_open(path, framework="pt") as file:
        before = file.metadata()
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    changed = change(tensors)
    save_file(tensors if changed is None else changed, path, metadata=before if metadata is None else metadata)


def cut(path: Path, size_bytes: int) -> None:
    """Keep the first bytes of a file."""
    path.write_bytes(path.read_bytes()[:size_bytes])


def shard(base: Path, parts: int = 3) -> Path:
    """Spread the single file over shards with an index; returns the index."""
    from safetensors.torch import load_file, save_file

    single = base / "model.safetensors"
    weights = load_file(single)
    single.unlink()
    names = [f"model-{part + 1:05}-of-{parts:05}.safetensors" for part in range(parts)]
    where = {key: names[place % parts] for place, key in enumerate(weights)}
    for name in names:
        save_file({key: weights[key] for key in weights if where[key] == name}, base / name)
    index = base / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": where}))
    return index
