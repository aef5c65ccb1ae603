"""Fixtures over ``serving_fakes``: a live service, and a way to start others."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from serving_fakes import FakeArm, Live, running


@pytest.fixture
def live() -> Iterator[Live]:
    with running(FakeArm()) as service:
        yield service


@pytest.fixture
def start() -> Iterator[Callable[..., Live]]:
    """Starts services with other settings; all end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda arm=None, **options: stack.enter_context(running(arm or FakeArm(), **options))
