"""HTTP only: routes, statuses, headers, the token. Nothing is computed here; a request waits as a coroutine.

Takes a ``Worker``, returns an ASGI application. Statuses of ``POST /v1/systemone``:

    200 answered                 401 no or wrong token        422 the contract refuses the request
    400 not (strict) JSON        408 body too slow            500 the forward failed; others go on
    413 body over 4 MiB          415 unknown encoding         503 queue full or still loading, with Retry-After
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import logging
import secrets
import time
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

import openjev_lab
from openjev_lab.contract import ContractError
from openjev_lab.serving import models
from openjev_lab.serving.body import BodyRefused, read_body
from openjev_lab.serving.openapi import REQUEST_BODY, Api
from openjev_lab.serving.steps import ForwardFailed, Stopped, dump
from openjev_lab.serving.worker import Job, NotReady, Overloaded, Worker
from openjev_lab.strict_json import JsonError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

log = logging.getLogger(__name__)
REQUEST_ID_HEADER = "x-typesafe-request-id"
PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {
        "model": models.Problem,
        "description": "Not JSON, or JSON that repeats keys or holds NaN or half a character",
    },
    401: {"model": models.Problem, "description": "The bearer token is missing or wrong"},
    408: {"model": models.Problem, "description": "The body took too long to arrive"},
    413: {"model": models.Problem, "description": "The body is over 4 MiB"},
    415: {"model": models.Problem, "description": "The body's encoding is not identity, gzip or zstd"},
    422: {"model": models.Problem, "description": "The contract refuses the request; nothing was computed"},
    500: {"model": models.Problem, "description": "The forward failed; other requests go on"},
    503: {"model": models.Problem, "description": "The queue is full or the model loads; see Retry-After"},
}
NULL_RESPONSE = dump(
    {
        "model": "null",
        "answers": {"answer": {"type": "noul", "noul": 0.5}},
        "usage": {"input_tokens": 0, "output_tokens": 0},
        "metadata": {
            "request_id": "0" * 24,
            **dict.fromkeys(["queue_ms", "prepare_ms", "execute_ms", "finish_ms", "elapsed_ms"], 0.000123),
            "candidate_tokens": [0],
            "scores": [0.1234567890123456],
        },
    }
)


def create_app(worker: Worker, *, token: str | None = None, null_endpoint: bool = False) -> FastAPI:
    """The application over a worker, which somebody else starts and stops.

    With a ``token``, every route but ``/health`` wants ``Authorization: Bearer TOKEN``. ``null_endpoint`` adds
    ``POST /null``, which reads a body and answers at once: what a client and HTTP cost without a model.
    """
    app = Api(
        title="openjev-lab",
        version=openjev_lab.__version__,
        description="Typed decisions from one scalar head: every candidate is one prompt, scored alone.",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
    )
    app.add_exception_handler(HTTPException, _plain_problem)
    if token is not None:
        app.add_middleware(TokenGate, token=token)
    _add_answers(app, worker)
    _add_facts(app, worker)
    if null_endpoint:
        app.add_api_route("/null", _null, methods=["POST"], include_in_schema=False)
    return app


def _add_answers(app: FastAPI, worker: Worker) -> None:
    names = map("{}{:016x}".format, itertools.repeat(secrets.token_hex(4)), itertools.count())

    @app.post(
        "/v1/systemone", responses={200: {"model": models.SystemOneResponse}, **PROBLEMS}, openapi_extra=REQUEST_BODY
    )
    async def systemone(request: Request) -> Response:
        """Answers typed questions about a state. A bad request is refused whole, before any forward."""
        started_ns = time.perf_counter_ns()
        request_id = next(names)
        headers = {REQUEST_ID_HEADER: request_id}
        try:
            body = await read_body(request)
            answered = await _wait(request, worker.submit(body, request_id, started_ns))
        except Exception as error:
            return _problem(error, headers)
        return Response(answered, headers=headers, media_type="application/json")


async def _wait(request: Request, job: Job) -> bytes:
    """The job's response; a client that goes away meanwhile takes its job out of the queue."""
    gone = asyncio.ensure_future(_until_gone(request))
    gone.add_done_callback(lambda _: job.cancel())
    try:
        return await asyncio.wrap_future(job.future)
    except asyncio.CancelledError:
        if gone.done():
            raise Stopped from None
        raise  # the server is being stopped, not the request
    finally:
        gone.cancel()


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _add_facts(app: FastAPI, worker: Worker) -> None:
    @app.get("/health", responses={200: {"model": models.Health}, 503: PROBLEMS[503]})
    async def health() -> Response:
        """Ready only after a real warm-up forward."""
        if not worker.ready:
            return _problem(NotReady("the model is loading or warming up"))
        return Response(dump({"status": "ready"}), media_type="application/json")

    @app.get("/v1/models", responses={200: {"model": models.ModelList}, 503: PROBLEMS[503]})
    async def list_models() -> Response:
        """The accepted model names."""
        if not worker.ready:
            return _problem(NotReady("the model is loading; its names come with it"))
        about = f"The one model served here, {worker.model}"
        entries = [{"name": name, "description": about, "release_date": "unknown"} for name in worker.names]
        return Response(dump({"models": entries}), media_type="application/json")

    @app.get("/v1/describe", responses={503: PROBLEMS[503]})
    async def describe() -> Response:
        """What really runs: versions, and the variant that serves each op."""
        if not worker.ready:
            return _problem(NotReady("the model is loading; what runs is known once it has run"))
        return Response(dump(worker.description), media_type="application/json")


async def _null(request: Request) -> Response:
    try:
        await read_body(request)
    except BodyRefused as error:
        return _problem(error)
    return Response(NULL_RESPONSE, headers={REQUEST_ID_HEADER: "0" * 24}, media_type="application/json")


def _problem(error: Exception, headers: dict[str, str] | None = None) -> Response:
    """The error as ``{"detail": ...}`` with the status that fits it."""
    status, extra = 500, {}
    match error:
        case BodyRefused():
            status = error.status
        case JsonError():
            status = 400
        case ContractError():
            status = 422
        case Overloaded():
            status, extra = 503, {"retry-after": str(error.retry_after_s)}
        case NotReady():
            status, extra = 503, {"retry-after": "1"}
        case Stopped() | ClientDisconnect():
            status = 499  # nobody reads it
        case ForwardFailed():
            log.error("%s", error, exc_info=error)
        case _:
            log.error("a bug of the service", exc_info=error)
    detail = str(error) if status != 500 or isinstance(error, ForwardFailed) else "the service failed; its log says how"
    return Response(dump({"detail": detail}), status, {**(headers or {}), **extra}, media_type="application/json")


async def _plain_problem(request: Request, error: Exception) -> Response:
    """404 and 405 in the shape of every other error, naming what there is."""
    assert isinstance(error, HTTPException)
    told = f"{error.detail}: {request.method} {request.url.path}; there are POST /v1/systemone and GET /health, "
    told += "/v1/models, /v1/describe, /openapi.json"
    return Response(dump({"detail": told}), error.status_code, error.headers, media_type="application/json")


class TokenGate:
    """Turns away what does not carry the bearer token; ``/health`` is open, so that a supervisor needs none."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self._token = app, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] != "/health":
            scheme, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
            given = given.lstrip(b" ")  # RFC 9110: one space or more
            if not (hmac.compare_digest(given, self._token) and scheme.lower() == b"bearer"):
                detail = {"detail": "a bearer token is needed: send the header 'Authorization: Bearer TOKEN'"}
                headers = {"www-authenticate": "Bearer"}
                refusal = Response(dump(detail), 401, headers, media_type="application/json")
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)
