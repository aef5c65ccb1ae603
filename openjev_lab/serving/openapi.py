"""The OpenAPI document: what FastAPI gathers from the routes, plus the request model that no route parses.

python -m openjev_lab.serving.openapi      writes serving/openapi.json, which a test compares with the application
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from openjev_lab.serving.models import SystemOneRequest

PLACE = "#/components/schemas/{model}"
COMMITTED = Path(__file__).with_name("openapi.json")
REQUEST_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": PLACE.format(model=SystemOneRequest.__name__)}}},
    }
}


class Api(FastAPI):
    """FastAPI whose document also holds the request's schema: its bytes are read by ``contract``, not by a model."""

    def openapi(self) -> dict[str, Any]:
        """The document, made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            _, request = models_json_schema([(SystemOneRequest, "validation")], ref_template=PLACE)
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            document["components"]["schemas"] = dict(sorted({**schemas, **request["$defs"]}.items()))
        assert self.openapi_schema is not None
        return self.openapi_schema


def text() -> str:
    """The document as it is committed."""
    from openjev_lab.serving.app import create_app
    from openjev_lab.serving.worker import Worker

    def never() -> Any:
        raise AssertionError("a document needs no model")

    return json.dumps(create_app(Worker(never)).openapi(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    COMMITTED.write_text(text(), encoding="utf-8")
