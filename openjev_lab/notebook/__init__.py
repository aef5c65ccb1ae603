"""What the notebooks share, so that they hold a story and no functions of their own.

``parameters`` checks what a run passed in; ``rung`` opens, measures and judges one rung; ``arithmetic`` says what a
rung should save; ``show`` is how a cell ends.
"""
