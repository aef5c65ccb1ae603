"""A service in this process over an arm that counts, blocks and fails when told: HTTP and threads are real."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import httpx
import uvicorn

from openjev_lab.serving.app import create_app
from openjev_lab.serving.run import bind
from openjev_lab.serving.worker import Worker


class FakePrompter:
    """A token a byte."""

    def encode(self, prompt: str) -> list[int]:
        return list(prompt.encode())


class FakeArm:
    """Scores a prompt by its bytes. ``seen`` lists the prompts; the first one is the warm-up."""

    def __init__(self, max_length: int = 400) -> None:
        names = ("lab/fake", "open-jev", "jev-latest", "open-jev-fake")
        self.package = SimpleNamespace(model_id=names[0], aliases=names, temperature=2.0, max_length=max_length)
        self.seen: list[str] = []
        self.open = threading.Event()
        """Cleared, every forward waits."""
        self.open.set()

    def score(self, ids: Sequence[int]) -> float:
        prompt = bytes(ids).decode()
        self.seen.append(prompt)
        assert self.open.wait(20), "the test forgot to open the gate"
        if "explode" in prompt:
            raise RuntimeError("device-side assert")
        return float("nan") if "vanish" in prompt else (sum(ids) % 97) / 10 - 4

    @property
    def forwards(self) -> int:
        """Forwards of requests, the warm-up left out."""
        return len(self.seen) - 1

    def describe(self) -> dict[str, Any]:
        return {"rung": "fake", "ops": {"head": "bytes"}}


@dataclass
class Live:
    """A running service."""

    url: str
    arm: FakeArm
    worker: Worker
    http: httpx.Client

    def post(self, body: Any = None, **given: Any) -> httpx.Response:
        """A systemone request; ``body`` as JSON unless it is bytes."""
        kind = {"content": body} if isinstance(body, bytes) else {"json": body}
        return self.http.post("/v1/systemone", **kind, **given)

    def ask(self, text: str, **given: Any) -> httpx.Response:
        """One noul about a state."""
        return self.post({"state": text, "questions": {"q": {"type": "noul", "instructions": "?"}}}, **given)

    def ask_aside(self, text: str) -> SimpleNamespace:
        """The same from a thread; its ``result()`` is the response."""
        answers: list[httpx.Response] = []
        client = httpx.Client(base_url=self.url, timeout=20)
        send = threading.Thread(target=lambda: answers.append(Live(self.url, self.arm, self.worker, client).ask(text)))
        send.start()

        def result() -> httpx.Response:
            send.join(20)
            return answers[0]

        return SimpleNamespace(result=result, close=client.close)

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits for the service to reach a state."""
        end = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < end, "the service did not get there within 10 s"
            time.sleep(0.002)


@contextlib.contextmanager
def running(arm: FakeArm, *, queue: int = 64, wait: bool = True, **options: Any) -> Iterator[Live]:
    """Starts a service over ``arm`` and stops it; ``wait`` until it is ready."""
    up = threading.Event()
    worker = Worker(lambda: (arm, FakePrompter()), queue=queue, on_up=lambda error: up.set())
    listener = bind("127.0.0.1", 0)
    app = create_app(worker, **options)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    worker.start()
    assert not wait or up.wait(10)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    token = options.get("token")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    try:
        with httpx.Client(base_url=url, timeout=20, headers=headers) as client:
            yield Live(url, arm, worker, client)
    finally:
        arm.open.set()
        server.should_exit = True
        thread.join(10)
        assert worker.stop()
