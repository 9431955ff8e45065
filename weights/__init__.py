"""Bytes of a checkpoint -> (ModelSpec, arrays, tokenizer files). Installed as ``fastattn.weights``."""

if __name__ != "fastattn.weights":
    raise ImportError("import this package as fastattn.weights (install fastattn first: pip install -e .)")
