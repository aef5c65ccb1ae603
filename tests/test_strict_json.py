"""Bytes become one JSON object or one error that says where: nothing that JSON libraries let through gets by."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openjev_lab.strict_json import ContractError, parse_json

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(text, json_values, max_size=4), st.booleans())
def test_any_json_object_is_read(value, ascii_only):
    assert parse_json(json.dumps(value, ensure_ascii=ascii_only).encode()) == value


@given(st.binary(max_size=40) | text.map(lambda value: ('{"a": ' + value).encode()))
def test_any_bytes_are_an_object_or_a_contract_error(body):
    try:
        assert isinstance(parse_json(body), dict)
    except ContractError as error:
        str(error).encode("utf-8")


BAD_BYTES = [
    (b"", None, "not JSON"),
    (b"hello", None, "not JSON: Expecting value at line 1 column 1"),
    (b"[1]", None, "must be a JSON object, not an array"),
    (b"null", None, "not null"),
    (b'{"a": 1} x', None, "not JSON"),
    (b'{"a": 01}', None, "not JSON"),
    (b"{'a': 1}", None, "not JSON"),
    (b'{"a": "\t"}', None, "not JSON: Invalid control character"),
    (b"\xff\xfe{\x00}\x00", None, "not UTF-8: byte 0"),
    (b'{"a": "\xed\xa0\x80"}', None, "not UTF-8"),
    (b"[" * 100_000, None, "nested too deeply"),
    (b'{"a": ' + b"9" * 5000 + b"}", None, "cannot be read"),
    (b'{"a": NaN}', None, "'NaN' is not a finite number.*in 'a'"),
    (b'{"a": [-Infinity]}', None, "'-Infinity' is not a finite number"),
    (b'{"a": 1e999}', None, "'1e999' is not a finite number"),
    (b'{"a": 1, "a": 1}', None, "key 'a' is given twice"),
    (b'{"state": "s", "questions": {"q": 1, "q": 2}}', None, "key 'q' is given twice.*in 'questions'"),
    (b'{"questions": {"q": {"type": "noul", "type": "noul"}}}', "q", "key 'type' is given twice"),
    (b'{"questions": {"q": {"criteria": {"a": 1, "b": 2, "\\u0061": 3}}}}', "q", "key 'a' is given twice"),
    (b'{"a": {"x": 1, "x": 2}, "a": 3}', None, "key 'x' is given twice"),
    (b'{"questions": {"q": {"instructions": [NaN]}}}', "q", "not a finite number.*'q' / 'instructions' / '0'"),
    (b'{"questions": {"q": {"instructions": "\\ud83d"}}}', "q", "lone surrogate"),
    (b'{"questions": {"q": {"criteria": {"\\udc00": null}}}}', "q", "lone surrogate"),
    (b'{"questions": {"\\udfff": {}}}', "\udfff", "lone surrogate"),
    (b'{"state": ["\\ud83d \\ude00"]}', None, "lone surrogate.*in 'state' / '0'"),
]


@pytest.mark.parametrize(("body", "where", "message"), BAD_BYTES, ids=[str(body[:50]) for body, *_ in BAD_BYTES])
def test_bad_bytes_are_refused_with_where_they_are(body, where, message):
    with pytest.raises(ContractError, match=message) as caught:
        parse_json(body)
    assert caught.value.where == where
    str(caught.value).encode("utf-8")


def test_looking_for_half_a_pair_costs_no_path_for_every_item_of_a_deep_array():
    body = b'{"a": "\\u0041", "state": ' + b"[" * 800 + b"0," * 20_000 + b"0" + b"]" * 800 + b"}"
    tracemalloc.start()
    try:
        parse_json(body)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_whole_surrogate_pairs_and_escapes_are_text():
    assert parse_json(b'{"a": "\\ud83d\\ude00 \\u00e9 \\u0000"}') == {"a": "😀 é \x00"}
