"""Ops: what each one is (``contract``), who computes it (``families``), and whether it is right (``check``)."""
