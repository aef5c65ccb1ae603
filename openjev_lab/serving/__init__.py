"""The service: ``POST /v1/systemone`` over one arm.

HTTP in ``app`` and ``body``, the three steps in ``steps``, threads and admission in ``worker``, the process in ``run``.
"""
