"""A server without a model, for tests of what is around one: python fake_server.py OPTIONS_AS_JSON

Answers ``/v1/systemone``, ``/null`` and ``/health`` like a real one. A request whose state begins with "yes" is
decided with P(yes) = 0.9, any other with 0.1. Options: ``delay_s`` before each answer, ``shift`` added to every score,
``load_s`` before it is ready, ``die_at`` and ``break_at`` (the n-th answer ends the process, or is a 500), ``refuse``
(ends at once, with words on stderr), ``unhealthy``, ``parent_pid``.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

OPTIONS: dict[str, Any] = json.loads(sys.argv[1]) if __name__ == "__main__" else {}
ANSWERED = 0


def answer(request: dict[str, Any], shift: float) -> dict[str, Any]:
    """A whole response, whose stages are made up."""
    sure = math.log(9) if str(request["state"]).startswith("yes") else -math.log(9)
    answers, scores = {}, []
    for name, question in request["questions"].items():
        count = 1 if question["type"] == "noul" else len(question["criteria"])
        own = [sure + shift - index for index in range(count)]
        scores += own
        if question["type"] == "noul":
            answers[name] = {"type": "noul", "noul": 1 / (1 + math.exp(-own[0]))}
        else:
            total = sum(map(math.exp, own))
            keys = question["criteria"] if question["type"] == "choice" else map(str, range(count))
            shares = {key: math.exp(score) / total for key, score in zip(keys, own, strict=True)}
            answers[name] = {"type": question["type"], "probabilities": shares}
    stages = {"queue_ms": 0.01, "prepare_ms": 0.25, "execute_ms": 1.5, "finish_ms": 0.125, "elapsed_ms": 1.9}
    metadata = {"request_id": os.urandom(4).hex(), "scores": scores, **stages}
    usage = {"input_tokens": len(request["state"]), "output_tokens": 0}
    return {"model": "fake", "answers": answers, "usage": usage, "metadata": metadata}


class Handler(BaseHTTPRequestHandler):
    """Keep-alive, quiet."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._send(503 if OPTIONS.get("unhealthy") else 200, {"status": "ready"})

    def do_POST(self) -> None:
        global ANSWERED
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/null":
            self._send(200, answer({"state": "", "questions": {"q": {"type": "noul"}}}, 0.0))
            return
        ANSWERED += 1
        time.sleep(OPTIONS.get("delay_s", 0))
        if OPTIONS.get("die_at") == ANSWERED:
            print("Traceback: the fake server was told to die", file=sys.stderr, flush=True)
            os._exit(7)
        if OPTIONS.get("break_at") == ANSWERED:
            self._send(500, {"detail": "the forward of 12 tokens failed"})
            return
        self._send(200, answer(json.loads(body), OPTIONS.get("shift", 0.0)))

    def _send(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        self.wfile.write(head.encode() + data)

    def log_message(self, *_: object) -> None:
        pass


def end_without(parent_pid: int) -> None:
    """As the real server: a measurement that is killed leaves none behind."""
    while os.getppid() == parent_pid:
        time.sleep(0.02)
    os._exit(1)


if __name__ == "__main__":
    if "refuse" in OPTIONS:
        print(f"a warning\nopenjev-lab: {OPTIONS['refuse']}", file=sys.stderr)
        sys.exit(2)
    if "parent_pid" in OPTIONS:
        threading.Thread(target=end_without, args=(OPTIONS["parent_pid"],), daemon=True).start()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print("a line of some library", flush=True)
    time.sleep(OPTIONS.get("load_s", 0))
    url = f"http://127.0.0.1:{server.server_address[1]}"
    print(json.dumps({"event": "ready", "url": url, "rung": OPTIONS.get("rung"), "ops": {"head": "fake"}}), flush=True)
    server.serve_forever()
