"""The tiny checkpoint: a small language of decisions, its tokenizer, and the script that trains a model on it."""
