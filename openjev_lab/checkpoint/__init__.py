"""Checkpoints: packages, merged exports and synthetic weights; from a path to named tensors on a device.

``load_package(path) -> Package`` checks all but the base's values; ``tensors(package, device, dtype)`` gives the merged
weights, ``base_tensors`` and ``lora_tensors`` the parts; ``merge.merge(package, out_dir, dtype)`` writes an export.
"""

from openjev_lab.checkpoint.load import load_package
from openjev_lab.checkpoint.package import Package
from openjev_lab.checkpoint.weights import base_tensors, lora_tensors, tensors

__all__ = ["Package", "base_tensors", "load_package", "lora_tensors", "tensors"]
