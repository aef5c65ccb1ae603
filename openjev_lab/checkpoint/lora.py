"""The adapter: which modules it must have, whether the files agree, its matrices, and its merge into a weight.

Takes a PEFT folder (``adapter_config.json``, ``adapter_model.safetensors``); returns an ``Adapter`` that is checked
against the geometry's list of modules, by headers alone, and later the matrices. Apart because PEFT itself fills what
is missing with fresh values and says nothing.

The update is Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2021: W + (alpha / rank) B A.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openjev_lab.checkpoint.base import read, shapes
from openjev_lab.checkpoint.files import (
    FLOATING,
    Entry,
    few,
    integer_field,
    need_file,
    number_field,
    read_header,
    read_json,
    shown,
)
from openjev_lab.errors import LabError
from openjev_lab.geometry import Geometry

if TYPE_CHECKING:
    from torch import Tensor

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
KEY = re.compile(
    r"(?:base_model\.model\.)?(?:model\.|language_model\.)*(layers\..+)\.lora_([AB])(?:\.default)?\.weight"
)
"""An adapter's key, whatever it was wrapped around when it was saved: module relative to the text model, A or B."""
MAX_RANK = 1024
PLAIN: dict[str, tuple[Any, ...]] = {
    "bias": ("none", None),
    "fan_in_fan_out": (False, None),
    "use_dora": (False, None),
    "use_rslora": (False, None),
    "lora_bias": (False, None),
    "rank_pattern": ({}, None),
    "alpha_pattern": ({}, None),
    "modules_to_save": ([], None),
    "target_parameters": ([], None),
    "layers_to_transform": ([], None),
    "layer_replication": ([], None),
    "exclude_modules": ([], None),
}
"""Settings of PEFT that change what an adapter means, with the values that leave it the plain update above."""


@dataclass(frozen=True, slots=True)
class Lora:
    """An adapter in numbers."""

    rank: int
    alpha: float
    modules: tuple[str, ...]
    """Every module that it changes, by name relative to the text model."""

    @property
    def scaling(self) -> float:
        """What multiplies B A."""
        return self.alpha / self.rank


@dataclass(frozen=True, slots=True)
class Adapter:
    """A checked adapter folder; no tensor has been read."""

    folder: Path
    lora: Lora
    entries: dict[str, Entry]
    """``MODULE.lora_A`` (rank, in) and ``MODULE.lora_B`` (out, rank) -> where it is stored."""
    base_revision: str | None
    """The base's revision, if the adapter's configuration states one."""


def open_adapter(folder: Path, geometry: Geometry, lora_rank: int) -> Adapter:
    """Check an adapter against ``model.json``'s rank and the geometry's modules. Raises ``LabError``."""
    config_file, weights = folder / CONFIG, folder / WEIGHTS
    config = read_json(config_file, "it is PEFT's description of the adapter")
    if config.get("peft_type") != "LORA":
        raise LabError(f'{config_file}: peft_type is {shown(config, "peft_type")}; it must be "LORA"')
    for name, plain in PLAIN.items():
        if name in config and config[name] not in plain:
            raise LabError(f"{config_file}: {name} is {shown(config, name)}; only plain LoRA is read, without it")
    rank = integer_field(config_file, config, "r", 1, MAX_RANK)
    alpha = number_field(config_file, config, "lora_alpha", positive=True)
    if rank != lora_rank:
        raise LabError(f"{config_file}: r is {rank}, model.json's lora_rank {lora_rank}; they must be the same")
    modules = geometry.lora_modules()
    _check_targets(config_file, config.get("target_modules"), modules)
    need_file(weights, "it holds the adapter's matrices, as safetensors")
    revision = config.get("revision")
    entries = _matched(weights, modules, rank, shapes(geometry))
    return Adapter(folder, Lora(rank, alpha, tuple(modules)), entries, revision if isinstance(revision, str) else None)


def _check_targets(path: Path, targets: Any, modules: Sequence[str]) -> None:
    """PEFT's own rule: a list matches a module's whole name or its end, text is a pattern for the whole name."""
    if isinstance(targets, str):
        try:
            pattern = re.compile(targets)
        except re.error as error:
            raise LabError(f"{path}: target_modules is no pattern ({error}); a list of names is right") from None
        chosen = {name for name in modules if pattern.fullmatch(name)}
    elif isinstance(targets, list) and targets and all(isinstance(target, str) for target in targets):
        chosen = {name for name in modules if any(name == t or name.endswith(f".{t}") for t in targets)}
        kinds = {name.rsplit(".", 1)[-1] for name in modules}
        strange = {target for target in targets if target.rsplit(".", 1)[-1] not in kinds}
        if strange:
            raise LabError(f"{path}: target_modules names {few(strange)}; {few(kinds, 9)} are right")
    else:
        raise LabError(f"{path}: target_modules must be a list of names or a pattern")
    absent = set(modules) - chosen
    if absent:
        raise LabError(f"{path}: target_modules leaves out {few(absent)}; it must reach all {len(modules)} modules")


def _matched(path: Path, modules: Sequence[str], rank: int, base: dict[str, tuple[int, ...]]) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    unexpected: set[str] = set()
    for key, entry in read_header(path).entries.items():
        match = KEY.fullmatch(key)
        name = f"{match[1]}.lora_{match[2]}" if match else ""
        if not match or match[1] not in modules:
            unexpected.add(key)
        elif name in found:
            raise LabError(f"{path} holds {name} twice, as {found[name].key} and {key}; keep one")
        else:
            found[name] = entry
    wanted = {f"{module}.lora_{part}": (module, part) for module in modules for part in "AB"}
    missing = set(wanted) - set(found)
    if missing:
        have = sum({f"{module}.lora_A", f"{module}.lora_B"} <= set(found) for module in modules)
        raise LabError(f"{path} has {have} of the {len(modules)} LoRA modules; it lacks {few(missing)}")
    if unexpected:
        raise LabError(f"{path} holds {few(unexpected)}, for which this geometry has no LoRA module")
    for name, (module, part) in wanted.items():
        out_features, in_features = base[f"{module}.weight"]
        shape = (rank, in_features) if part == "A" else (out_features, rank)
        entry = found[name]
        if entry.shape != shape:
            raise LabError(f"{path}: {entry.key} is {list(entry.shape)}; rank {rank} makes it {list(shape)}")
        if entry.dtype not in FLOATING:
            raise LabError(f"{path}: {entry.key} is stored as {entry.dtype}; one of {list(FLOATING)} is right")
    return {name: found[name] for name in wanted}


def read_adapter(adapter: Adapter, device: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Module -> (A, B) in float32, which is what PEFT computes with. Raises ``LabError`` where one is not finite."""
    found = {name: tensor.float() for name, tensor in read(adapter.entries, device)}
    return {module: (found[f"{module}.lora_A"], found[f"{module}.lora_B"]) for module in adapter.lora.modules}


def merged(weight: Tensor, pair: tuple[Tensor, Tensor], scaling: float) -> Tensor:
    """W + scaling B A in float64, shape (out, in); the caller rounds, once.

    float64 so that the result, rounded to a dtype in use, is the same on every device and with every library.
    """
    a, b = (part.double() for part in pair)
    return weight.double().addmm_(b, a, alpha=scaling)
