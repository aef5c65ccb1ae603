"""Tests marked ``gpu`` are left out, by name and counted, where there is no CUDA device."""

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    import torch

    if not torch.cuda.is_available():
        config.hook.pytest_deselected(items=marked)
        items[:] = [item for item in items if item not in marked]
