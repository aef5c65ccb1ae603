"""The served process: its ready line, its signals, what it refuses to bind, and its end with its starter."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from openjev_lab.errors import LabError
from openjev_lab.serving.run import Settings, bind, is_loopback, serve

NOUL = {"type": "noul", "instructions": "?"}
REQUEST = {"state": "s", "questions": {"q": NOUL}}


@contextlib.contextmanager
def served(**settings: Any) -> Iterator[subprocess.Popen[str]]:
    """The process, killed at the end if it has not ended by itself."""
    program = [sys.executable, str(Path(__file__).with_name("serve_fake.py")), json.dumps(settings)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ready(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    return json.loads(process.stdout.readline())


def test_the_ready_line_tells_url_and_what_runs():
    with served(null_endpoint=True) as process:
        line = ready(process)
        assert line["event"] == "ready" and line["rung"] == "fake"
        assert line["url"].startswith("http://127.0.0.1:")
        assert httpx.get(line["url"] + "/health").json() == {"status": "ready"}
        assert httpx.post(line["url"] + "/v1/systemone", json=REQUEST).status_code == 200
        process.terminate()
        assert process.wait(5) == 0
        assert process.communicate() == ("", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_admitted_requests_finish(number):
    with served(forward_s=1.2) as process:
        url = ready(process)["url"] + "/v1/systemone"
        statuses: list[int] = []

        def send() -> None:
            statuses.append(httpx.post(url, json=REQUEST).status_code)

        ask = [threading.Thread(target=send) for _ in range(2)]
        for thread in ask:
            thread.start()
        time.sleep(0.8)
        process.send_signal(number)
        for thread in ask:
            thread.join(10)
        assert statuses == [200, 200]
        assert process.wait(5) == 0
        with pytest.raises(httpx.ConnectError):
            httpx.post(url, json=REQUEST)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_what_was_admitted(number):
    questions = {str(index): {**NOUL, "instructions": str(index)} for index in range(40)}
    with served(forward_s=0.5) as process:
        host, port = ready(process)["url"].removeprefix("http://").split(":")
        body = json.dumps({**REQUEST, "questions": questions}).encode()
        with socket.create_connection((host, int(port))) as wire:
            wire.sendall(b"POST /v1/systemone HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
            time.sleep(0.8)
            for _ in range(2):
                process.send_signal(number)
                time.sleep(0.5)
            assert process.wait(8) == 0


def test_a_signal_while_loading_ends_at_once():
    port = free_port()
    with served(load_s=60, port=port) as process:
        until_listening(f"http://127.0.0.1:{port}/health")
        process.terminate()
        assert process.wait(5) == 0


def test_while_loading_the_port_answers_503():
    port = free_port()
    with served(load_s=60, port=port) as process:
        response = until_listening(f"http://127.0.0.1:{port}/health")
        assert response.status_code == 503 and "loading" in response.json()["detail"]
        assert process.poll() is None


def test_a_load_that_fails_ends_the_process_with_its_message():
    with served(fail=True) as process:
        _, errors = process.communicate(timeout=20)
        assert (process.returncode, errors) == (2, "openjev-lab: head.pt is missing\n")


def test_a_server_ends_when_its_starter_is_killed():
    with served(orphan=True) as starter:
        line = ready(starter)
        assert starter.wait(10) == 9
        end = time.monotonic() + 8
        while time.monotonic() < end:
            try:
                httpx.get(line["url"] + "/health")
            except httpx.ConnectError:
                break
            time.sleep(0.1)
        else:
            os.kill(line["pid"], signal.SIGKILL)
            pytest.fail("the server outlived the process that started it")


def test_a_taken_port_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(LabError, match="can't listen on 127.0.0.1 port .* takes a free one"):
            bind("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(LabError, match="can't listen"):
        bind("127.0.0.1", 99999)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "example.org", ""])
def test_an_open_bind_wants_a_token(host):
    with pytest.raises(LabError, match="--token"):
        Settings(host)
    Settings(host, token="s3cret")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_loopback_wants_none(host):
    assert is_loopback(host)
    Settings(host, queue=0)


@pytest.mark.parametrize("token", ["", "two words", "schlüssel", "tab\t"])
def test_a_token_that_no_header_can_carry_is_refused(token):
    with pytest.raises(LabError, match="--token must be"):
        Settings(token=token)


def test_no_thread_at_all_is_refused():
    with pytest.raises(LabError, match="--threads.* 1 or more; got 0"):
        serve("packed-silu", "nowhere", threads=0)


def test_a_negative_queue_is_refused():
    with pytest.raises(LabError, match="--queue"):
        Settings(queue=-1)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def until_listening(url: str) -> httpx.Response:
    end = time.monotonic() + 30
    while True:
        try:
            return httpx.get(url)
        except httpx.ConnectError:
            assert time.monotonic() < end
            time.sleep(0.05)
