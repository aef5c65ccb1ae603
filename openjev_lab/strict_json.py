"""Strict JSON: a request's bytes become a dict, or one error that says what is wrong and where.

Apart from ``contract`` because it knows bytes and escapes and nothing of questions. It refuses what JSON libraries let
through: repeated keys, NaN, Infinity and numbers that overflow to it, halves of surrogate pairs in keys or values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from openjev_lab.errors import LabError


class ContractError(LabError):
    """A request that the contract refuses; ``where`` is the question's id, None when the whole request is at fault."""

    def __init__(self, message: str, where: str | None = None) -> None:
        super().__init__(message if where is None else f"question {quoted(where)}: {message}")
        self.where = where


def quoted(name: object) -> str:
    """A name as shown in messages: quoted, unprintable characters escaped, at most 80 characters of it."""
    text = str(name)
    return repr(text) if len(text) <= 80 else repr(text[:80]) + "..."


def parse_json(body: bytes) -> dict[str, Any]:
    """The request as a dict, from a JSON object in UTF-8.

    Refuses what JSON libraries let through: repeated keys, NaN, Infinity and numbers that overflow to it, halves of
    surrogate pairs in keys or values. Raises ``ContractError``.
    """
    repeated: list[tuple[dict[str, Any], str]] = []
    unreal: list[str] = []
    try:
        value = json.loads(
            body.decode("utf-8"),
            object_pairs_hook=lambda pairs: _object(pairs, repeated),
            parse_constant=lambda name: _number(name, unreal),
            parse_float=lambda digits: _number(digits, unreal),
        )
    except UnicodeDecodeError as error:
        raise ContractError(f"the body is not UTF-8: byte {error.start} does not belong there") from None
    except json.JSONDecodeError as error:
        raise ContractError(f"the body is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise ContractError("the body is nested too deeply; flatten the state") from None
    except ValueError as error:  # an integer with thousands of digits
        raise ContractError(f"the body holds a number that cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise ContractError(f"the body must be a JSON object, not {kind_of(value)}")
    for holder, key in repeated:
        path = _find(value, lambda item, holder=holder: item is holder) or ()
        raise ContractError(f"key {quoted(key)} is given twice; keep one{_at(path)}", _question_of(path))
    for digits in unreal:
        path = _find(value, lambda item: isinstance(item, float) and not math.isfinite(item)) or ()
        raise ContractError(
            f"{quoted(digits)} is not a finite number; send one, or text{_at(path)}", _question_of(path)
        )
    if b"\\u" in body:  # raw UTF-8 cannot hold a lone surrogate: only an escape can
        path = _find(value, _lone)
        if path is not None:
            raise ContractError(
                f"a lone surrogate (half of a \\u pair) is not text; send both halves or none{_at(path)}",
                _question_of(path),
            )
    return value


def _object(pairs: list[tuple[str, Any]], repeated: list[tuple[dict[str, Any], str]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        first = next(key for key, _ in pairs if key in seen or seen.add(key))
        repeated.append((made, first))
    return made


def _number(digits: str, unreal: list[str]) -> float:
    number = float(digits)
    if not math.isfinite(number):
        unreal.append(digits)
    return number


def _lone(item: Any) -> bool:
    return isinstance(item, str) and not is_text(item)


def is_text(text: str) -> bool:
    """Whether the text can be written as UTF-8, that is, holds no half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _find(value: Any, wanted: Callable[[Any], bool], path: tuple[Any, ...] = ()) -> tuple[Any, ...] | None:
    """The path to the first key or value that is ``wanted``; a key's own path ends with the key."""
    stack = [(value, path)]
    while stack:
        item, path = stack.pop()
        if wanted(item):
            return path
        if isinstance(item, dict):
            for key in item:
                if wanted(key):
                    return (*path, key)
            stack.extend((child, (*path, key)) for key, child in reversed(item.items()))
        elif isinstance(item, list):
            stack.extend((item[index], (*path, index)) for index in range(len(item) - 1, -1, -1))
    return None


def _at(path: tuple[Any, ...]) -> str:
    return " (in " + " / ".join(quoted(step) for step in path) + ")" if path else ""


def _question_of(path: tuple[Any, ...]) -> str | None:
    return path[1] if len(path) >= 2 and path[0] == "questions" and isinstance(path[1], str) else None


def kind_of(value: Any) -> str:
    """What a JSON value is, in words for a message."""
    names = {dict: "an object", list: "an array", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else f"a {type(value).__name__}")
