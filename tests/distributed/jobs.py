"""A job and records for tests."""

from fastattn.distributed.job import Job


def some_job(**changes):
    files = [{"url": "in/a.txt", "size": 12, "modified": 7}, {"url": "in/b.txt", "size": 5, "modified": 8}]
    values = {
        "kind": "translate",
        "model": "ab" * 32,
        "model_name": "en-pt",
        "options": {"precision": "float32", "beam_size": 1},
        "column": "text",
        "outputs": ["translation"],
        "form": "parquet",
        "version": "0.1.0",
        "block_bytes": 131072,
        "files": files,
    }
    return Job(**values | changes)


RECORD = {"rows": 3, "null": 1, "faults": 0, "first_faults": [], "tokens": 20, "seconds": 0.5, "input": "cd" * 32}
