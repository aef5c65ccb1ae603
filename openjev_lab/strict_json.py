"""Strict JSON: a request's bytes become a dict, or one error that says what is wrong and where.

Apart from ``contract`` because it knows bytes and escapes and nothing of questions. It refuses what JSON libraries let
through: repeated keys, NaN, Infinity and numbers that overflow to it, halves of surrogate pairs in keys or values.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from openjev_lab.errors import LabError


class ContractError(LabError):
    """A request that the contract refuses; ``where`` is the question's id, None when the whole request is at fault."""

    def __init__(self, message: str, where: str | None = None) -> None:
        super().__init__(message if where is None else f"question {quoted(where)}: {message}")
        self.where = where


class JsonError(ContractError):
    """A body that is not one JSON object, or not strictly: told apart because HTTP has a status for it."""


def quoted(name: object) -> str:
    """A name as shown in messages: quoted, unprintable characters escaped, at most 80 characters of it."""
    text = str(name)
    return repr(text) if len(text) <= 80 else repr(text[:80]) + "..."


def parse_json(body: bytes) -> dict[str, Any]:
    """The request as a dict, from a JSON object in UTF-8.

    Refuses what JSON libraries let through: repeated keys, NaN, Infinity and numbers that overflow to it, halves of
    surrogate pairs in keys or values. Raises ``JsonError``.
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
        raise JsonError(f"the body is not UTF-8: byte {error.start} does not belong there") from None
    except json.JSONDecodeError as error:
        raise JsonError(f"the body is not JSON: {error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise JsonError("the body is nested too deeply; flatten the state") from None
    except ValueError as error:  # an integer with thousands of digits
        raise JsonError(f"the body holds a number that cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise JsonError(f"the body must be a JSON object, not {kind_of(value)}")
    if repeated:
        holder, key = repeated[0]
        raise _error_at(value, lambda item: item is holder, f"key {quoted(key)} is given twice; keep one")
    if unreal:
        message = f"{quoted(unreal[0])} is not a finite number; send one, or text"
        raise _error_at(value, lambda item: isinstance(item, float) and not math.isfinite(item), message)
    if b"\\u" in body and _find(value, _is_lone) is not None:  # raw UTF-8 cannot hold half a pair: only an escape can
        raise _error_at(value, _is_lone, "a lone surrogate (half of a \\u pair) is not text; send both halves or none")
    return value


def _error_at(value: Any, wanted: Callable[[Any], bool], message: str) -> JsonError:
    """The error for the first thing wanted: its path in the message, its question's id in ``where``."""
    path = _find(value, wanted) or ()
    inside = len(path) >= 2 and path[0] == "questions"
    trail = " (in " + " / ".join(quoted(step) for step in path) + ")" if path else ""
    return JsonError(f"{message}{trail}", str(path[1]) if inside else None)


def _object(pairs: list[tuple[str, Any]], repeated: list[tuple[dict[str, Any], str]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        counts = Counter(key for key, _ in pairs)
        repeated.append((made, next(key for key, count in counts.items() if count > 1)))
    return made


def _number(digits: str, unreal: list[str]) -> float:
    number = float(digits)
    if not math.isfinite(number):
        unreal.append(digits)
    return number


def _is_lone(item: Any) -> bool:
    return isinstance(item, str) and not is_text(item)


def is_text(text: str) -> bool:
    """Whether the text can be written as UTF-8, that is, holds no half of a surrogate pair."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _find(value: Any, wanted: Callable[[Any], bool]) -> tuple[Any, ...] | None:
    """The path to the first key or value that is ``wanted``; a key's own path ends with the key."""
    if wanted(value):
        return ()
    path: list[Any] = []
    levels = [_members(value)]  # one path and one iterator a level: a wide array deep down must not cost a path an item
    while levels:
        for key, item in levels[-1]:
            if wanted(key) or wanted(item):
                return (*path, key)
            if isinstance(item, dict | list):
                path.append(key)
                levels.append(_members(item))
                break
        else:
            levels.pop()
            del path[-1:]
    return None


def _members(item: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(item, dict):
        return iter(item.items())
    return iter(enumerate(item)) if isinstance(item, list) else iter(())


def kind_of(value: Any) -> str:
    """What a JSON value is, in words for a message."""
    names = {dict: "an object", list: "an array", str: "text", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number" if isinstance(value, int | float) else f"a {type(value).__name__}")
