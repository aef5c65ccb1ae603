"""Admission and threads over HTTP: order, overload, clients that leave, hang or crawl, forwards that fail."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from serving_fakes import FakeArm, FakePrompter, Live

from openjev_lab.errors import LabError
from openjev_lab.serving import body as body_module
from openjev_lab.serving.worker import Worker

NOUL = {"type": "noul", "instructions": "?"}


def raw(live: Live, sent: bytes) -> socket.socket:
    """A connection on which ``sent`` has been sent."""
    host, port = live.url.removeprefix("http://").split(":")
    wire = socket.create_connection((host, int(port)), timeout=10)
    wire.sendall(sent)
    return wire


def post_of(state: str) -> bytes:
    content = b'{"state": "%s", "questions": {"q": {"type": "noul", "instructions": "?"}}}' % state.encode()
    return b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(content), content)


def states(live: Live) -> list[str]:
    """The states of the forwards done or begun, the warm-up left out, in order."""
    return [prompt.split("\n")[1] for prompt in live.arm.seen[1:]]


def test_health_is_503_until_the_warm_up_forward_is_done(start):
    arm = FakeArm()
    arm.open.clear()
    live = start(arm, wait=False)
    live.until(lambda: len(arm.seen) == 1)
    for response in (
        live.http.get("/health"),
        live.http.get("/v1/models"),
        live.http.get("/v1/describe"),
        live.ask("x"),
    ):
        assert response.status_code == 503 and response.headers["retry-after"] == "1"
    arm.open.set()
    live.until(lambda: live.http.get("/health").status_code == 200)
    assert live.http.get("/health").json() == {"status": "ready"}
    assert live.ask("x").status_code == 200


def test_requests_run_one_at_a_time_in_order_of_arrival(live):
    live.arm.open.clear()
    asked = []
    for index in range(5):
        asked.append(live.ask_aside(f"s{index}"))
        live.until(lambda count=index: live.worker.admitted == count + 1)
    live.until(lambda: live.worker.waiting == 4)
    assert states(live) == ["s0"]
    assert live.http.get("/health").status_code == 200  # answers while the arm is busy
    live.arm.open.set()
    assert [one.result().status_code for one in asked] == [200] * 5
    assert states(live) == [f"s{index}" for index in range(5)]


def test_past_the_queue_requests_are_turned_away_and_later_ones_are_not(start):
    live = start(queue=2)
    live.arm.open.clear()
    asked = [live.ask_aside(f"s{index}") for index in range(3)]
    live.until(lambda: live.worker.admitted == 3)
    before = time.perf_counter()
    refused = live.ask("too many")
    assert time.perf_counter() - before < 1
    assert refused.status_code == 503 and int(refused.headers["retry-after"]) >= 1
    assert "3 requests are running or waiting" in refused.json()["detail"]
    live.arm.open.set()
    assert [one.result().status_code for one in asked] == [200] * 3
    assert live.ask("after").status_code == 200
    assert "too many" not in states(live)


def test_retry_after_grows_with_what_waits_and_how_long_it_takes(start):
    live = start(queue=2)
    live.worker.last_execute_s = 7.0
    live.arm.open.clear()
    asked = [live.ask_aside(f"s{index}") for index in range(3)]
    live.until(lambda: live.worker.admitted == 3)
    assert live.ask("too many").headers["retry-after"] == "21"
    live.arm.open.set()
    assert all(one.result().status_code == 200 for one in asked)


def test_a_client_that_leaves_the_queue_gives_its_place_back(start):
    live = start(queue=2)
    live.arm.open.clear()
    running = live.ask_aside("runs")
    live.until(lambda: live.worker.admitted == 1)
    leaving = [raw(live, post_of(f"leaves{index}")) for index in range(2)]
    live.until(lambda: live.worker.waiting == 2)
    assert live.ask("no room").status_code == 503
    for wire in leaving:
        wire.close()
    live.until(lambda: live.worker.admitted == 1)
    patient = live.ask_aside("patient")
    live.until(lambda: live.worker.admitted == 2)
    live.arm.open.set()
    assert running.result().status_code == patient.result().status_code == 200
    assert states(live) == ["runs", "patient"]


def test_a_client_that_leaves_while_running_stops_before_its_next_candidate(live):
    live.arm.open.clear()
    options = ", ".join(f'"o{index}": null' for index in range(50))
    content = (
        f'{{"state": "s", "questions": {{"q": {{"type": "choice", "instructions": "?", "criteria": {{{options}}}}}}}}}'
    )
    wire = raw(live, b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(content))
    wire.sendall(content.encode())
    live.until(lambda: live.arm.forwards == 1)
    wire.close()
    live.until(lambda: live.worker.running is not None and live.worker.running.gone)
    live.arm.open.set()
    live.until(lambda: live.worker.admitted == 0)
    assert live.arm.forwards == 1
    assert live.ask("next").status_code == 200


def test_a_failed_forward_is_a_500_of_its_own(live):
    live.arm.open.clear()
    asked = [live.ask_aside(text) for text in ("fine", "explode", "vanish", "also fine")]
    live.until(lambda: live.worker.waiting == 3)
    live.arm.open.set()
    answers = {one.result().request.content: one.result() for one in asked}
    failed = [answer for answer in answers.values() if answer.status_code == 500]
    assert len(answers) == 4 and len(failed) == 2
    details = sorted(answer.json()["detail"] for answer in failed)
    assert "score nan" in details[0] and "RuntimeError: device-side assert" in details[1]
    assert live.http.get("/health").status_code == 200
    assert live.ask("still there").status_code == 200


def test_a_client_that_never_finishes_its_body_holds_up_nobody(live, monkeypatch):
    monkeypatch.setattr(body_module, "BODY_TIMEOUT_S", 0.3)
    hung = [raw(live, post_of("half")[:-10]) for _ in range(20)]
    silent = [raw(live, b"") for _ in range(20)]
    assert live.ask("x").status_code == 200
    assert live.worker.admitted == 0
    assert hung[0].recv(100).startswith(b"HTTP/1.1 408")
    for wire in hung + silent:
        wire.close()
    assert live.ask("y").status_code == 200


def test_a_client_that_sends_or_reads_slowly_is_answered(live):
    whole = post_of("slow")
    wire = raw(live, whole[:60])
    for start in range(60, len(whole), 20):
        time.sleep(0.005)
        wire.sendall(whole[start : start + 20])
    assert live.ask("quick").status_code == 200
    answer = b""
    while not answer.endswith(b"]}}"):
        answer += wire.recv(16)
    assert answer.startswith(b"HTTP/1.1 200")
    wire.close()


def test_one_connection_serves_many_requests(live):
    wire = raw(live, post_of("first") + post_of("second"))  # pipelined
    answer = b""
    while answer.count(b"]}}") < 2:
        answer += wire.recv(4096)
    assert answer.count(b"HTTP/1.1 200") == 2
    wire.close()


def test_a_long_prepare_does_not_hold_up_a_short_one(live, monkeypatch):
    encode = FakePrompter.encode

    def slow(self: FakePrompter, prompt: str) -> list[int]:
        assert "long" not in prompt or live.arm.open.wait(10)
        return encode(self, prompt)

    monkeypatch.setattr(FakePrompter, "encode", slow)
    live.arm.open.clear()
    long = live.ask_aside("long")
    live.until(lambda: live.worker.admitted == 1)
    live.ask_aside("short")
    live.until(lambda: states(live) == ["short"])
    live.arm.open.set()
    assert long.result().status_code == 200


def test_a_long_prepare_keeps_its_place_before_what_came_later(live, monkeypatch):
    encode, prepared = FakePrompter.encode, threading.Event()

    def slow(self: FakePrompter, prompt: str) -> list[int]:
        assert "long" not in prompt or prepared.wait(10)
        return encode(self, prompt)

    monkeypatch.setattr(FakePrompter, "encode", slow)
    live.arm.open.clear()
    asked = [live.ask_aside("first")]
    live.until(lambda: states(live) == ["first"])
    for count, state in enumerate(("long", "short"), 2):
        asked.append(live.ask_aside(state))
        live.until(lambda count=count: live.worker.admitted == count)
    live.until(lambda: live.worker.waiting == 1)
    prepared.set()
    live.until(lambda: live.worker.waiting == 2)
    live.arm.open.set()
    assert [one.result().status_code for one in asked] == [200] * 3
    assert states(live) == ["first", "long", "short"]


@pytest.mark.parametrize("error", [LabError("no such checkpoint"), RuntimeError("out of memory")])
def test_an_arm_that_cannot_be_loaded_is_told_and_never_ready(error):
    told: list[BaseException | None] = []

    def load():
        raise error

    worker = Worker(load, on_up=told.append)
    worker.start()
    assert worker.stop(5) and told == [error] and not worker.ready


def test_a_warm_up_that_gives_no_number_is_not_ready():
    told: list[BaseException | None] = []
    arm = FakeArm()
    arm.score = lambda ids: float("nan")  # type: ignore[method-assign]
    worker = Worker(lambda: (arm, FakePrompter()), on_up=told.append)
    worker.start()
    assert worker.stop(5) and "warm-up forward" in str(told[0]) and not worker.ready
