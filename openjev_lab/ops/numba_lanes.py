"""Vector registers in Numba: a type of 8 or 16 float32 side by side, and the operations on it.

Takes and returns ``float32`` or ``Lanes``; where both meet, the single value is repeated in every lane. Every operation
here emits the same LLVM instruction for both, so a kernel's arithmetic reads the same one at a time and in lanes, and
gives the same bits. ``load8(values, start)`` and ``store(values, start, lanes)`` move lanes from and to a contiguous
one-dimensional float32 array, which must hold them all. A CPU with narrower registers gets several instructions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import PrimitiveModel
from numba.core.extending import register_model
from numba.extending import intrinsic, overload


class Lanes(types.Type):
    """Numba's type of ``width`` float32 in a vector register."""

    def __init__(self, width: int) -> None:
        self.width = width
        super().__init__(name=f"float32x{width}")

    @property
    def llvm(self) -> Any:
        return ir.VectorType(ir.FloatType(), self.width)


@register_model(Lanes)
class _LanesModel(PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, kind.llvm)


_LANES = {8: Lanes(8), 16: Lanes(16)}


def _typed(emit: Callable[..., Any], *arguments: Any) -> Any:
    """Signature and code of an operation on these types; None, as Numba wants it, if they are others."""
    kinds = {argument for argument in arguments if isinstance(argument, Lanes)}
    if len(kinds) > 1 or not all(argument in (types.float32, *kinds) for argument in arguments):
        return None
    kind = kinds.pop() if kinds else types.float32

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        if isinstance(kind, Lanes):
            values = [v if v.type == kind.llvm else _repeated(builder, v, kind) for v in values]
        return emit(builder, *values)

    return kind(*arguments), code


def _repeated(builder: Any, value: Any, kind: Lanes) -> Any:
    first = builder.insert_element(ir.Constant(kind.llvm, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), kind.width), None)
    return builder.shuffle_vector(first, ir.Constant(kind.llvm, ir.Undefined), zeros)


def _unary(emit: Callable[..., Any]) -> Any:
    def function(context: Any, a: Any) -> Any:
        return _typed(emit, a)

    return intrinsic(function)


def _binary(emit: Callable[..., Any]) -> Any:
    def function(context: Any, a: Any, b: Any) -> Any:
        return _typed(emit, a, b)

    return intrinsic(function)


def _ternary(emit: Callable[..., Any]) -> Any:
    def function(context: Any, a: Any, b: Any, c: Any) -> Any:
        return _typed(emit, a, b, c)

    return intrinsic(function)


def _call(builder: Any, name: str, *values: Any) -> Any:
    """LLVM's own operation of that name."""
    kind = values[0].type
    width = f"v{kind.count}" if isinstance(kind, ir.VectorType) else ""
    signature = ir.FunctionType(kind, [kind] * len(values))
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, f"llvm.{name}.{width}f32"), values)


def _power_of_two(builder: Any, a: Any) -> Any:
    vector = isinstance(a.type, ir.VectorType)
    whole = ir.VectorType(ir.IntType(32), a.type.count) if vector else ir.IntType(32)

    def constant(value: int) -> Any:
        return ir.Constant(whole, [value] * a.type.count if vector else value)

    exponent = builder.add(builder.fptosi(a, whole), constant(127))
    return builder.bitcast(builder.shl(exponent, constant(23)), a.type)


fma = _ternary(lambda builder, a, b, c: _call(builder, "fma", a, b, c))
"""a * b + c, rounded once."""
smaller = _binary(lambda builder, a, b: builder.select(builder.fcmp_ordered("<", b, a), b, a))
larger = _binary(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", b, a), b, a))
nearest = _unary(lambda builder, a: _call(builder, "rint", a))
"""The nearest whole number, ties to even."""
power_of_two = _unary(_power_of_two)
"""2^a of a whole number from -126 to 127."""

_OPERATORS = {
    operator.add: _binary(lambda builder, a, b: builder.fadd(a, b)),
    operator.sub: _binary(lambda builder, a, b: builder.fsub(a, b)),
    operator.mul: _binary(lambda builder, a, b: builder.fmul(a, b)),
    operator.truediv: _binary(lambda builder, a, b: builder.fdiv(a, b)),
}


def _register(symbol: Any, function: Any) -> None:
    """Python's operator for Lanes; Numba keeps its own for single values."""

    @overload(symbol)
    def typed(a: Any, b: Any) -> Any:
        def code(a: Any, b: Any) -> Any:
            return function(a, b)

        return code if isinstance(a, Lanes) or isinstance(b, Lanes) else None


for _symbol, _function in _OPERATORS.items():
    _register(_symbol, _function)


def _zero(width: int) -> Any:
    def function(context: Any) -> Any:
        return _LANES[width](), lambda context, builder, signature, values: ir.Constant(_LANES[width].llvm, None)

    return intrinsic(function)


def _load(width: int) -> Any:
    def function(context: Any, values: Any, start: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.load(_pointer(context, builder, signature, arguments, _LANES[width]), align=4)

        return _LANES[width](values, start), code

    return intrinsic(function)


zero8, zero16 = _zero(8), _zero(16)
load8, load16 = _load(8), _load(16)
"""Lanes of ``values[start : start + width]``."""


@intrinsic
def store(context: Any, values: Any, start: Any, lanes: Any) -> Any:
    """``values[start : start + width] = lanes``; a single value is stored alone."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store(arguments[2], _pointer(context, builder, signature, arguments, lanes), align=4)
        return context.get_dummy_value()

    return types.void(values, start, lanes), code


@intrinsic
def total(context: Any, lanes: Any) -> Any:
    """The sum of all lanes: halves onto each other until one is left, an order that does not depend on the CPU."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (vector,) = arguments
        values = [builder.extract_element(vector, ir.Constant(ir.IntType(32), i)) for i in range(lanes.width)]
        while len(values) > 1:
            half = len(values) // 2
            values = [builder.fadd(low, high) for low, high in zip(values[:half], values[half:], strict=True)]
        return values[0]

    return types.float32(lanes), code


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any, kind: Any) -> Any:
    array_kind = signature.args[0]
    array = context.make_array(array_kind)(context, builder, arguments[0])
    place = cgutils.get_item_pointer(context, builder, array_kind, array, [arguments[1]])
    return builder.bitcast(place, (kind.llvm if isinstance(kind, Lanes) else ir.FloatType()).as_pointer())
