"""The public clients against a rung served on the tiny checkpoint: ``typesafe-sdk``, sync and async, ``jevbench``."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typesafe_sdk import (
    AsyncTypeSafeClient,
    Choice,
    Noul,
    RetryPolicy,
    Score,
    TypeSafeAuthenticationError,
    TypeSafeClient,
    TypeSafeUnprocessableEntityError,
)

ROOT = Path(__file__).parents[2]
TOKEN = "test-token"
STATE = {"subject": "Invoice", "messages": ["I was charged twice.", "Please help before Friday."]}
QUESTIONS: dict[str, Any] = {
    "billing": Noul(instructions="Is this about billing?"),
    "angry": Noul(
        instructions="Is the writer angry?", criteria={"true": "Upset or hostile", "false": {"tone": "calm"}}
    ),
    "topic": Choice(
        instructions="What is this about?", criteria={"billing": "Money", "travel": None, "sport": ["ball"]}
    ),
    "urgency": Score(instructions="How urgent is it?", criteria=["Can wait", "This week", {"when": "today"}]),
}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server process as a user starts it."""
    program = [
        sys.executable,
        "-m",
        "openjev_lab",
        "serve",
        "--rung",
        "packed-silu",
        "--checkpoint",
        "checkpoints/tiny",
    ]
    program += ["--token", TOKEN, "--parent-pid", str(os.getpid())]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        assert line["event"] == "ready"
        yield line["url"]
        process.terminate()
        assert process.wait(10) == 0


def check(result: Any) -> None:
    """What must hold of the answers to ``QUESTIONS``, whatever the model thinks."""
    assert set(result.answers) == set(QUESTIONS)
    assert 0 < result.nouls["billing"].noul < 1
    topic, urgency = result.choices["topic"], result.scores["urgency"]
    assert list(topic.probabilities) == ["billing", "travel", "sport"]
    assert topic.choice == max(topic.probabilities, key=topic.probabilities.__getitem__)
    assert urgency.legend == {0: "Can wait", 1: "This week", 2: {"when": "today"}}
    assert urgency.score == pytest.approx(sum(level * chance for level, chance in urgency.probabilities.items()))
    for answer in (topic, urgency):
        assert sum(answer.probabilities.values()) == pytest.approx(1) and 0 <= answer.confidence <= 1
    assert result.usage.input_tokens > 100 and result.usage.output_tokens == 0
    assert result.request_id


@pytest.mark.parametrize("compression", [False, "zstd"])
def test_typesafe_sdk(url, compression):
    with TypeSafeClient(base_url=url, api_key=TOKEN, compression=compression) as client:
        check(client.system_one(STATE, QUESTIONS))
        long = {"filler": "word " * 300, **STATE}  # past 1 KiB the client compresses
        check(client.system_one(long, QUESTIONS))
        for model in client.models.list().models:
            assert client.system_one("x", {"q": QUESTIONS["billing"]}, model=model.name).nouls["q"].noul


def test_typesafe_sdk_async_answers_like_the_sync_one(url):
    async def ask() -> list[Any]:
        async with AsyncTypeSafeClient(base_url=url, api_key=TOKEN) as client:
            return await asyncio.gather(*(client.system_one(STATE, QUESTIONS) for _ in range(4)))

    with TypeSafeClient(base_url=url, api_key=TOKEN) as client:
        expected = client.system_one(STATE, QUESTIONS).answers
    for result in asyncio.run(ask()):
        check(result)
        assert result.answers == expected


def test_typesafe_sdk_reads_our_errors(url):
    with TypeSafeClient(base_url=url, api_key=TOKEN, retry=RetryPolicy(max_retries=0)) as client:
        with pytest.raises(TypeSafeUnprocessableEntityError, match="question 'q': .* 2 to 10 level"):
            client.system_one("x", {"q": Score(criteria=["only one"], instructions="?")})
        with pytest.raises(TypeSafeUnprocessableEntityError, match="model 'gpt' is not served here"):
            client.system_one("x", {"q": QUESTIONS["billing"]}, model="gpt")
        with pytest.raises(TypeSafeUnprocessableEntityError, match="tokens, the checkpoint takes"):
            client.system_one("word " * 20_000, {"q": QUESTIONS["billing"]})
    with TypeSafeClient(base_url=url, api_key="wrong") as client, pytest.raises(TypeSafeAuthenticationError):
        client.models.list()


def test_jevbench_finds_answers_isolated_and_blind_to_order(url, tmp_path):
    """Its suite of one real case completes; what an isolating server must satisfy holds to rounding."""
    program = [str(Path(sys.executable).with_name("jevbench")), "eval", "--url", f"{url}/v1/systemone"]
    program += [
        "--model",
        "open-jev",
        "--suite",
        "examples",
        "--no-cache",
        "--tolerance",
        "1e-9",
        "--out",
        "report.json",
    ]
    environment = {**os.environ, "JEVBENCH_API_KEY": TOKEN}
    subprocess.run(program, cwd=tmp_path, env=environment, check=True, timeout=120, stdout=subprocess.DEVNULL)
    scores = json.loads((tmp_path / "report.json").read_text())["scores"]
    assert scores["pillars"]["BAT"] == 1.0  # alone, in other company, reversed, doubled, in batches of any size
    assert scores["pillars"]["CHO"] == 1.0  # options left out or added
    for relation in ("key_rename", "option_permutation"):
        assert scores["relations"][relation] == 1.0


def test_answers_have_the_same_bits_in_any_order_and_company(url):
    questions: dict[str, Any] = {name: question.model_dump() for name, question in QUESTIONS.items()}
    with httpx.Client(base_url=url, headers={"authorization": f"Bearer {TOKEN}"}, timeout=30) as client:

        def ask(asked: dict[str, Any]) -> dict[str, Any]:
            response = client.post("/v1/systemone", json={"state": STATE, "questions": asked})
            assert response.status_code == 200, response.text
            return response.json()["answers"]

        whole = ask(questions)
        assert ask(dict(reversed(questions.items()))) == whole
        for name, question in questions.items():
            assert ask({"renamed": question})["renamed"] == whole[name]
        topic = {**questions["topic"], "criteria": dict(reversed(questions["topic"]["criteria"].items()))}
        assert ask({"topic": topic})["topic"] == whole["topic"]
