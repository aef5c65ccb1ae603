"""openjev-lab: a workbench that walks the ladder from raw Hugging Face to a fused decision-model engine.

Importing the package imports none of torch, transformers, numba, cupy, polars or altair: each module takes what it
needs when it is used, so that the command line answers at once.
"""

__version__ = "0.1.0"
