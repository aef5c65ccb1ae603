"""The clock against servers whose delay is known, and every way in which a reply can fail."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from openjev_lab.measure.client import Client, Reply

Serve = Callable[[socket.socket], None]


@contextlib.contextmanager
def serving(handle: Serve) -> Iterator[Client]:
    """A client of a server that hands each new connection to ``handle``."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    handle(connection)

    threading.Thread(target=accept, daemon=True).start()
    with listener, Client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.5) as client:
        yield client


def receive(connection: socket.socket) -> bytes:
    """One whole request; b"" at the end."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def reply(body: bytes, head: str = "", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


def always(*parts: bytes, before_s: float = 0.0, between_s: float = 0.0) -> Serve:
    """Answers each request of a connection with ``parts``."""

    def handle(connection: socket.socket) -> None:
        while receive(connection):
            time.sleep(before_s)
            for part in parts:
                connection.sendall(part)
                time.sleep(between_s)

    return handle


def ask(client: Client, body: bytes = b"{}") -> Reply:
    return client.post(client.message("/v1/systemone", body))


@pytest.mark.parametrize("delay_ms", [20, 60])
def test_the_clock_shows_a_known_delay(delay_ms: int) -> None:
    with serving(always(reply(b'{"a": 1}'), before_s=delay_ms / 1e3)) as client:
        found = [ask(client) for _ in range(6)]
    latencies_ms = [(answer.latency_ns or 0) / 1e6 for answer in found]
    assert delay_ms <= min(latencies_ms) < delay_ms + 8, latencies_ms
    assert all(answer.text == '{"a": 1}' and answer.status == 200 for answer in found)


def test_the_clock_runs_until_the_last_byte_is_there() -> None:
    whole = reply(b"x" * 300_000)
    with serving(always(whole[:100], whole[100:], between_s=0.03)) as client:
        answer = ask(client)
    assert answer.latency_ns is not None and answer.latency_ns >= 30e6 and answer.text == "x" * 300_000


def test_the_wall_clock_is_taken_just_before() -> None:
    with serving(always(reply(b"{}"), before_s=0.02)) as client:
        before, answer, after = time.time_ns(), ask(client), time.time_ns()
    assert before <= answer.started_ns <= after - 20e6


def test_what_is_sent_is_the_body_whole_with_its_length() -> None:
    seen: list[bytes] = []

    def handle(connection: socket.socket) -> None:
        seen.append(receive(connection))
        connection.sendall(reply(b"{}"))

    body = "é".encode() * 200_000
    with serving(handle) as client:
        assert ask(client, body).status == 200
    head, _, sent = seen[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/systemone HTTP/1.1\r\n") and sent == body


def test_one_connection_serves_many_requests() -> None:
    connections: list[int] = []

    def handle(connection: socket.socket) -> None:
        connections.append(1)
        always(reply(b"{}"))(connection)

    with serving(handle) as client:
        assert [ask(client).status for _ in range(5)] == [200] * 5
    assert len(connections) == 1


@pytest.mark.parametrize("head", ["Connection: close\r\n", ""])
def test_a_connection_that_the_server_ended_is_made_anew_without_an_error(head: str) -> None:
    def once(connection: socket.socket) -> None:
        receive(connection)
        connection.sendall(reply(b"{}", head))

    with serving(once) as client:
        for _ in range(3):
            assert ask(client).error is None
            time.sleep(0.02)  # the end of the connection arrives


def test_chunked_replies_and_other_statuses_are_replies() -> None:
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    with serving(always(chunked)) as client:
        assert ask(client).text == "abcde"
    with serving(always(reply(b'{"detail": "full"}', "Retry-After: 1\r\n", "503 X"))) as client:
        answer = ask(client)
    assert (answer.status, answer.text, answer.error) == (503, '{"detail": "full"}', None) and answer.latency_ns


@pytest.mark.parametrize(
    ("handle", "told"),
    [
        (always(reply(b"12345")[:-2], before_s=0.0, between_s=0.7), "TimeoutError"),
        (lambda connection: connection.sendall(reply(b"12345")[:-2]), "Error"),
        (lambda connection: [receive(connection), connection.sendall(reply(b"12345")[:-2])], "before the reply"),
        (lambda connection: [receive(connection)], "before the reply was whole"),
        (always(b"not HTTP at all\r\n\r\n"), "HttpParser"),
        (always(reply(b"\xff\xfe")), "UnicodeDecodeError"),
    ],
    ids=["timeout", "cut without reading", "cut", "closed", "not HTTP", "not text"],
)  # fmt: skip
def test_a_reply_that_is_not_whole_is_an_error_without_a_latency(handle: Serve, told: str) -> None:
    with serving(handle) as client:
        answer = ask(client)
    assert answer.latency_ns is None and answer.status is None and answer.text is None
    assert answer.error is not None and told in answer.error


def test_after_an_error_the_next_request_has_a_connection_of_its_own() -> None:
    replies = iter([b"nonsense\r\n\r\n", reply(b"{}")])

    def handle(connection: socket.socket) -> None:
        receive(connection)
        connection.sendall(next(replies))

    with serving(handle) as client:
        assert ask(client).error is not None
        assert ask(client).status == 200


def test_nobody_listening_is_an_error_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    answer = ask(Client(f"http://127.0.0.1:{port}", timeout_s=0.5))
    assert answer.error is not None and answer.error.startswith("no connection") and answer.latency_ns is None
