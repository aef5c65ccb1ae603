"""What a ``.cu`` variant says about itself: its architecture, macros, scratch, and how each kernel is launched.

Takes the source's text; returns a ``Source``. Apart from ``launch`` because nothing here needs a GPU, CuPy or torch.
Directives are comment lines that start with ``//@``. Expressions are Python over the geometry's fields, ``T`` (tokens),
``cdiv``, ``min``, ``max``, and of the buffers ``rows(name)``::

    //@ arch: sm_80                      least architecture; sm_90a means Hopper alone
    //@ dtype: bfloat16                  the model dtype that it serves
    //@ require: head_dim == 256         else it does not support the geometry
    //@ define: HIDDEN = hidden          a macro
    //@ scratch: partial = float32, cdiv(rows(out), 64) * heads
    //@ tensormap: v_map = qkv, (kv_heads, head_dim), (64, 1, 64), v_offset
                                         a buffer's rows as heads x dim, in boxes of (dim, head, row), from an offset on
    //@ kernel: name                     starts a kernel; launched in this order
    //@ grid: T, heads
    //@ block: 256
    //@ smem: 49152                      dynamic shared memory in bytes; 0 if left out
    //@ args: x, out, eps, T             buffers and scratch as pointers, maps by value, int as int32, float
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

from openjev_lab.errors import LabError
from openjev_lab.geometry import Geometry
from openjev_lab.ops import build

SHARED_LIMIT_BYTES = {"sm_80": 163 * 1024, "sm_90a": 227 * 1024}
"""Most shared memory of a block, static and dynamic together (CUDA C++ Programming Guide, compute capabilities)."""
_DIRECTIVE = re.compile(r"^//@[ \t]*(\w+)[ \t]*:[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_BETWEEN_ARGS = re.compile(r",\s*(?![^()]*\))")


@dataclass(frozen=True, slots=True)
class Expression:
    """A directive's Python expression, compiled once."""

    text: str
    code: CodeType = field(repr=False)

    def __call__(self, names: Mapping[str, Any]) -> Any:
        return eval(self.code, {"__builtins__": {}}, names)  # our own source files, never a request


@dataclass(frozen=True, slots=True)
class Kernel:
    """One launch: `grid` gives up to three sizes, `block` threads, `smem` bytes."""

    name: str
    grid: Expression
    block: Expression
    smem: Expression
    args: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """A ``.cu`` text with its directives."""

    path: Path
    text: str = field(repr=False)
    arch: str
    dtype: str
    requires: tuple[Expression, ...]
    defines: Mapping[str, Expression]
    scratch: Mapping[str, tuple[str, Expression]]
    """name -> (dtype, elements)"""
    maps: Mapping[str, tuple[str, Expression]]
    """name -> (buffer, arguments of `tensormap.encode` after it)"""
    kernels: tuple[Kernel, ...]

    @property
    def archs(self) -> tuple[str, ...]:
        """The architectures that it must compile for."""
        return ("sm_90a",) if self.arch == "sm_90a" else ("sm_80", "sm_90a")

    def unmet(self, geometry: Geometry) -> str:
        """The first requirement that a geometry does not meet; empty if it meets all."""
        return next((needed.text for needed in self.requires if not needed(names_of(geometry))), "")

    def build(self, geometry: Geometry, arch: str, cache_dir: Path | None = None) -> build.Build:
        """Compiles it for one geometry; `LabError` if it does not compile."""
        names = names_of(geometry)
        return build.compile_text(
            self.text,
            name=str(self.path),
            arch=arch,
            defines={name: value(names) for name, value in self.defines.items()},
            include_dirs=(self.path.parent, self.path.parent.parent / "include"),
            cache_dir=cache_dir,
        )


def names_of(geometry: Geometry) -> dict[str, Any]:
    """What an expression sees of a geometry: its fields and properties, and a few functions."""
    fields = {name: getattr(geometry, name) for name in dir(geometry) if not name.startswith("_")}
    return fields | {"cdiv": lambda value, divisor: -(-value // divisor), "min": min, "max": max}


def parse(text: str, path: Path) -> Source:
    """Reads a variant's directives; `LabError` naming the file and the directive that is wrong."""
    single = {"arch": "sm_80", "dtype": "bfloat16"}
    requires: list[Expression] = []
    named: dict[str, dict[str, str]] = {"define": {}, "scratch": {}, "tensormap": {}}
    kernels: list[dict[str, str]] = []
    for key, value in _DIRECTIVE.findall(text):
        if key in single:
            single[key] = value
        elif key == "require":
            requires.append(_expression(value, path))
        elif key in named:
            name, equals, body = value.partition("=")
            if not equals:
                raise LabError(f'{path}: "//@ {key}: {value}" must have the form "NAME = ..."')
            named[key][name.strip()] = body.strip()
        elif key == "kernel":
            kernels.append({"kernel": value, "smem": "0"})
        elif key in ("grid", "block", "smem", "args") and kernels:
            kernels[-1][key] = value
        else:
            raise LabError(f'{path}: "//@ {key}: {value}" is no directive, or it stands before any "//@ kernel:"')
    if not kernels:
        raise LabError(f'{path}: a CUDA variant needs a "//@ kernel:" directive')
    return Source(
        path=path,
        text=text,
        arch=single["arch"],
        dtype=single["dtype"],
        requires=tuple(requires),
        defines={name: _expression(body, path) for name, body in named["define"].items()},
        scratch={name: _headed(body, path) for name, body in named["scratch"].items()},
        maps={name: _headed(body, path) for name, body in named["tensormap"].items()},
        kernels=tuple(_kernel(fields, path) for fields in kernels),
    )


def _kernel(fields: Mapping[str, str], path: Path) -> Kernel:
    for needed in ("grid", "block", "args"):
        if needed not in fields:
            raise LabError(f'{path}: kernel {fields["kernel"]} has no "//@ {needed}:" directive')
    return Kernel(
        fields["kernel"],
        _expression(f"({fields['grid']},)", path),
        _expression(fields["block"], path),
        _expression(fields["smem"], path),
        tuple(_expression(argument, path) for argument in _BETWEEN_ARGS.split(fields["args"])),
    )


def _headed(body: str, path: Path) -> tuple[str, Expression]:
    """("bfloat16", expression) of "bfloat16, expression": a dtype or a buffer's name, then the rest."""
    head, _, rest = body.partition(",")
    return head.strip(), _expression(rest.strip(), path)


def _expression(text: str, path: Path) -> Expression:
    try:
        return Expression(text, compile(text, str(path), "eval"))
    except SyntaxError as problem:
        raise LabError(f"{path}: {text!r} in a directive is no expression: {problem.msg}") from problem
