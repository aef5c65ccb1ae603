"""Merge: a package's adapter into its base, written as a checkpoint folder that needs no adapter any more.

Takes a package, a folder that must not exist yet, and a dtype; returns the folder, which holds size-limited shards
under transformers' bare names, the text model's configuration, the tokenizer, and last ``open_jev_export.json``. It is
written aside and renamed when complete: the folder appears whole or not at all. What a failed attempt left aside is
removed, by itself or, where it was killed, by the next. Apart from ``export`` so that opening one imports no writer.

    openjev-lab merge PACKAGE OUT
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from openjev_lab.checkpoint.base import INDEX, SINGLE, TEXT_TYPE
from openjev_lab.checkpoint.export import FORMAT, MARKER
from openjev_lab.checkpoint.files import sha256
from openjev_lab.checkpoint.load import load_package
from openjev_lab.checkpoint.package import Package
from openjev_lab.checkpoint.weights import Progress, stream, torch_dtype
from openjev_lab.errors import LabError
from openjev_lab.tokens import Prompter

SHARD_BYTES = 5_000_000_000
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
)
"""What a tokenizer's folder may hold; the first two it must, or the prompter has already refused it."""


def merge(
    package: Package | str | Path,
    out_dir: str | Path,
    dtype: str = "bfloat16",
    *,
    device: str = "cpu",
    shard_bytes: int = SHARD_BYTES,
    progress: Progress | None = None,
) -> Path:
    """Write the merged export of a package (or of synthetic weights) and return its folder.

    ``device`` is where the products are formed; the result is the same on each. At most one shard, or one tensor if
    that is larger, is in memory. Raises ``LabError`` if ``out_dir`` exists, if another merge is writing it, or for
    anything wrong in the package.
    """
    torch_dtype(dtype)
    if not isinstance(package, Package):
        package = load_package(package)
    if package.lora is None:
        raise LabError(f"{package.path} is merged already; give the package that it came from")
    prompter = Prompter.load(package.tokenizer_dir)
    out = Path(out_dir)
    with _aside(out) as folder:
        said = {"base_revision": package.base_revision, "checkpoint_revision": package.revision, "dtype": dtype}
        _write_shards(folder, stream(package, device, dtype, progress), shard_bytes, {"format": "pt"} | said)
        _write_json(folder / "config.json", _config(package, dtype))
        for shard in folder.glob("*.safetensors"):  # the library writes them for their owner alone
            shard.chmod((folder / "config.json").stat().st_mode)
        for name in TOKENIZER_FILES:
            if (package.tokenizer_dir / name).is_file():
                shutil.copyfile(package.tokenizer_dir / name, folder / name)
        _write_json(folder / MARKER, _marker(package, folder, dtype, prompter))
    return out


@contextmanager
def bar() -> Iterator[Progress]:
    """A progress bar on a terminal, nothing elsewhere, to give to ``merge`` as ``progress``."""
    from tqdm import tqdm

    with tqdm(unit="tensor", disable=None) as shown:

        def step(name: str, done: int, total: int) -> None:
            shown.total = total
            shown.set_postfix_str(name, refresh=False)
            shown.update(done - shown.n)

        yield step


@contextmanager
def _aside(out: Path) -> Iterator[Path]:
    """A fresh folder beside ``out``, locked; becomes ``out`` when the block ends well, is removed when it does not."""
    _refuse_existing(out)
    folder = out.with_name(f".{out.name}.partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise LabError(
            f"{folder} cannot be made ({error.strerror}); the merge is written there, beside {out}"
        ) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # goes with its process, so a killed merge holds nothing
        except BlockingIOError:
            raise LabError(f"another merge is writing {out} (in {folder}); wait for it, or stop it") from None
        _refuse_existing(out)  # the other may have ended in between
        try:
            _empty(folder)
            yield folder
            for path in folder.iterdir():
                _sync(path)
            _sync(folder)
            folder.rename(out)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def _refuse_existing(out: Path) -> None:
    if out.exists() or out.is_symlink():
        raise LabError(f"{out} exists already; a merge never overwrites: give a new folder, or remove that one")


def _empty(folder: Path) -> None:
    """Remove what a killed attempt left."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_shards(
    folder: Path, weights: Iterator[tuple[str, Tensor]], limit_bytes: int, metadata: dict[str, str]
) -> None:
    """One ``model.safetensors``, or numbered shards and their index where it would be larger than the limit."""
    files: list[Path] = []
    where: dict[str, int] = {}
    total_bytes = 0
    for index, shard in enumerate(_shards(weights, limit_bytes)):
        files.append(folder / f"shard-{index}")
        _write_shard(files[-1], shard, metadata)
        where |= dict.fromkeys(shard, index)
        total_bytes += sum(tensor.nbytes for tensor in shard.values())
    if len(files) == 1:
        files[0].rename(folder / SINGLE)
        return
    names = [f"model-{index:05}-of-{len(files):05}.safetensors" for index in range(1, len(files) + 1)]
    for file, name in zip(files, names, strict=True):
        file.rename(folder / name)
    weight_map = {name: names[index] for name, index in sorted(where.items())}
    _write_json(folder / INDEX, {"metadata": {"total_size": total_bytes}, "weight_map": weight_map})


def _shards(weights: Iterator[tuple[str, Tensor]], limit_bytes: int) -> Iterator[dict[str, Tensor]]:
    shard: dict[str, Tensor] = {}
    for name, tensor in weights:
        if shard and sum(other.nbytes for other in shard.values()) + tensor.nbytes > limit_bytes:
            yield shard
            shard = {}
        shard[name] = tensor.cpu().contiguous()
    yield shard


def _write_shard(path: Path, shard: dict[str, Tensor], metadata: dict[str, str]) -> None:
    from safetensors.torch import save_file

    try:
        save_file(shard, path, metadata=metadata)
    except Exception as error:  # the library raises its own, with the system's message inside
        raise LabError(f"{path} cannot be written: {error}") from None


def _config(package: Package, dtype: str) -> dict[str, Any]:
    """The text model's own configuration, out of its wrapper, as transformers' ``Qwen3_5TextModel`` reads it."""
    config = dict(package.base.config) if package.base else package.geometry.to_config()
    config.pop("torch_dtype", None)
    return config | {"model_type": TEXT_TYPE, "architectures": ["Qwen3_5TextModel"], "dtype": dtype}


def _marker(package: Package, folder: Path, dtype: str, prompter: Prompter) -> dict[str, Any]:
    files = {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in sorted(folder.iterdir())}
    return {
        "format": FORMAT,
        "model_id": package.model_id,
        "base_revision": package.base_revision,
        "checkpoint_revision": package.revision,
        "temperature": package.temperature,
        "max_length": package.max_length,
        "chat_prefix": prompter.chat_prefix,
        "chat_suffix": prompter.chat_suffix,
        "head_weight": package.head_weight.tolist(),
        "head_bias": package.head_bias,
        "dtype": dtype,
        "files": files,
    }


def _write_json(path: Path, value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1, sort_keys=path.name != MARKER)
    path.write_text(text + "\n", encoding="utf-8")
