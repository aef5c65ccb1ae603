"""HTTP over a counting arm: statuses, shapes, the token, every bad input refused before any forward."""

from __future__ import annotations

import gzip
import json
import socket
from typing import Any

import pytest

from openjev_lab.contract import MAX_BODY_BYTES
from openjev_lab.serving import models, openapi
from openjev_lab.serving.body import zstd

NOUL = {"type": "noul", "instructions": "Is it?"}


def request(**question: Any) -> bytes:
    return json.dumps({"state": "s", "questions": {"the question": question}}).encode()


def test_an_answer_has_the_contracts_shape(live):
    criteria = {"a": None, "b": "the second"}
    questions = {
        "n": NOUL,
        "c": {"type": "choice", "instructions": "Which?", "criteria": criteria},
        "s": {"type": "score", "instructions": "How?", "criteria": ["low", {"is": "high"}]},
    }
    response = live.post({"model": "jev-latest", "state": {"é": [1]}, "questions": questions})
    assert response.status_code == 200 and response.headers["content-type"] == "application/json"
    told = models.SystemOneResponse.model_validate(response.json())
    assert told.model == "lab/fake"
    assert list(response.json()["answers"]) == ["n", "c", "s"]
    assert response.json()["answers"]["s"]["legend"] == {"0": "low", "1": {"is": "high"}}
    assert (
        told.usage.input_tokens
        == sum(told.metadata.candidate_tokens)
        == sum(map(len, map(str.encode, live.arm.seen[1:])))
    )
    assert len(told.metadata.scores) == len(told.metadata.candidate_tokens) == 5
    assert response.headers["x-typesafe-request-id"] == told.metadata.request_id
    times = told.metadata
    parts = times.queue_ms + times.prepare_ms + times.execute_ms + times.finish_ms
    assert min(times.queue_ms, times.prepare_ms, times.execute_ms, times.finish_ms) > 0
    assert parts <= times.elapsed_ms < 5000


def test_every_accepted_name_is_listed_and_answers(live):
    listed = [entry["name"] for entry in live.http.get("/v1/models").json()["models"]]
    assert listed == ["lab/fake", "open-jev", "jev-latest", "open-jev-fake"]
    for name in [None, *listed]:
        response = live.post({"model": name, "state": "s", "questions": {"q": NOUL}})
        assert response.status_code == 200 and response.json()["model"] == "lab/fake"


BAD = [
    (b"hello", 400, "not JSON"),
    (b"", 400, "not JSON"),
    (b"[]", 400, "must be a JSON object"),
    (b"\xff", 400, "UTF-8"),
    (b'{"state": "s", "state": "t", "questions": {"q": 1}}', 400, "'state' is given twice"),
    (request(**NOUL).replace(b"Is it?", b"\\ud800"), 400, "question 'the question': a lone surrogate"),
    (request(**NOUL).replace(b'"Is it?"', b"[NaN]"), 400, "question 'the question': 'NaN' is not a finite number"),
    (request(**NOUL).replace(b'"Is it?"', b"[1e999]"), 400, "'1e999' is not a finite number"),
    (request(type="choice", instructions="?", criteria={}), 422, "question 'the question': criteria of a choice"),
    (request(type="choice", instructions="?", criteria={str(n): None for n in range(256)}), 422, "got 256 options"),
    (request(type="score", instructions="?", criteria=["a"]), 422, "got 1 levels"),
    (request(type="score", instructions="?", criteria=["a"] * 11), 422, "got 11 levels"),
    (request(type="box", instructions="?"), 422, "question 'the question': type must be one of noul, choice, score"),
    (request(**NOUL, hint="x"), 422, "unknown key 'hint'"),
    (request(type="noul", instructions="x" * 500), 422, "tokens, the checkpoint takes 400"),
    (json.dumps({"state": "s", "questions": {}}).encode(), 422, "1 to 4096 questions"),
    (
        json.dumps({"state": "s", "questions": {"q": NOUL}, "model": "gpt"}).encode(),
        422,
        "send one of jev-latest, lab/fake",
    ),
    (b" " * (MAX_BODY_BYTES + 1), 413, "4 MiB"),
]


@pytest.mark.parametrize(("body", "status", "message"), BAD, ids=[f"{status} {text}" for _, status, text in BAD])
def test_bad_input_is_refused_before_any_forward(live, body, status, message):
    response = live.post(body)
    assert response.status_code == status, response.text
    assert set(response.json()) == {"detail"} and message in response.json()["detail"]
    assert live.arm.forwards == 0
    assert live.ask("fine").status_code == 200


def test_one_bad_question_refuses_the_whole_request(live):
    questions = {"good": NOUL, "bad": {**NOUL, "type": "noun"}}
    response = live.post({"state": "s", "questions": questions})
    assert response.status_code == 422 and "question 'bad'" in response.json()["detail"]
    assert live.arm.forwards == 0


def test_a_body_of_exactly_the_limit_is_read_and_a_streamed_one_past_it_is_not(live):
    body = request(**NOUL)
    assert live.post(body + b" " * (MAX_BODY_BYTES - len(body))).status_code == 200
    chunks = (b" " * 65536 for _ in range(65))  # no length is declared
    assert live.http.post("/v1/systemone", content=chunks).status_code == 413


def test_a_declared_length_past_the_limit_is_refused_before_the_body_comes(live):
    host, port = live.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as wire:
        wire.sendall(b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: 5000000\r\n\r\n{")
        assert wire.recv(100).startswith(b"HTTP/1.1 413")


def test_compressed_bodies_are_read_under_the_same_limit(live):
    for encoding, compress in (("gzip", gzip.compress), ("zstd", zstd().compress)):
        headers = {"content-encoding": encoding}
        assert live.post(compress(request(**NOUL)), headers=headers).status_code == 200
        bomb = live.post(compress(b" " * (MAX_BODY_BYTES + 1)), headers=headers)
        assert bomb.status_code == 413
        assert live.post(b"plain", headers=headers).status_code == 400
        cut = live.post(compress(request(**NOUL))[:-4], headers=headers)
        assert cut.status_code == 400 and "cut short" in cut.json()["detail"]
        for more in (b"more", compress(b"more")):  # reading the first stream alone would drop it in silence
            longer = live.post(compress(request(**NOUL)) + more, headers=headers)
            assert longer.status_code == 400 and "goes on after its end" in longer.json()["detail"]
    unknown = live.post(request(**NOUL), headers={"content-encoding": "br"})
    assert unknown.status_code == 415 and "identity, gzip or zstd" in unknown.json()["detail"]


def test_unknown_paths_and_methods_say_what_there_is(live):
    missing, wrong = live.http.get("/v2/systemone"), live.http.get("/v1/systemone")
    assert (missing.status_code, wrong.status_code) == (404, 405)
    assert wrong.headers["allow"] == "POST"
    for response in (missing, wrong):
        assert "POST /v1/systemone" in response.json()["detail"]


def test_describe_says_what_runs(live):
    assert live.http.get("/v1/describe").json() == {"rung": "fake", "ops": {"head": "bytes"}}


def test_the_null_endpoint_is_there_only_on_request_and_computes_nothing(live, start):
    assert live.http.post("/null", content=b"{}").status_code == 404
    other = start(null_endpoint=True)
    response = other.http.post("/null", content=request(**NOUL))
    models.SystemOneResponse.model_validate(response.json())
    assert other.http.post("/null", content=b" " * (MAX_BODY_BYTES + 1)).status_code == 413
    assert other.arm.forwards == 0


def test_a_token_guards_everything_but_health(start):
    live = start(token="s3cret", null_endpoint=True)
    assert live.ask("x").status_code == 200
    assert live.http.get("/health", headers={"authorization": ""}).status_code == 200
    for path in ("/v1/models", "/v1/describe", "/openapi.json", "/nowhere"):
        assert live.http.get(path).status_code in (200, 404)
        for wrong in ("", "Bearer", "Bearer s3cre", "Bearer s3crets", "Basic s3cret", "Bearer é"):
            response = live.http.get(path, headers={"authorization": wrong.encode()})
            assert response.status_code == 401 and "Bearer TOKEN" in response.json()["detail"]
            assert response.headers["www-authenticate"] == "Bearer"
    assert live.ask("x", headers={"authorization": "Bearer no"}).status_code == 401
    for right in ("bearer s3cret", "Bearer   s3cret"):  # RFC 9110: any case, one space or more
        assert live.ask("x", headers={"authorization": right}).status_code == 200
    assert live.arm.forwards == 3


def test_the_committed_openapi_document_is_the_applications(live):
    assert openapi.COMMITTED.read_text(encoding="utf-8") == openapi.text(), "python -m openjev_lab.serving.openapi"
    document = live.http.get("/openapi.json").json()
    assert document == json.loads(openapi.text())
    for path in _references(document):
        node: Any = document
        for step in path.removeprefix("#/").split("/"):
            node = node[step]


def _references(node: Any) -> list[str]:
    if isinstance(node, dict):
        inner = [path for value in node.values() for path in _references(value)]
        return inner + ([node["$ref"]] if isinstance(node.get("$ref"), str) else [])
    return [path for value in node for path in _references(value)] if isinstance(node, list) else []
