"""From evidence to tables, charts and one HTML file, without torch and without a GPU.

``source`` reads what was recorded, ``tables`` computes frames from it, ``charts`` draws them, ``render`` writes the
lot. ``tables`` and ``charts`` serve notebooks as well: every public function takes the run folder.
"""
