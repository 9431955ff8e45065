"""Little files that ask for much: each is refused by name, or read, within the memory and steps that its size allows.

run_hostile.py, a process of its own, reads them and counts; the time limit here only ends what would hang.
"""

import subprocess
import sys
from pathlib import Path

import hostile_files as files
import pytest

RUN = Path(__file__).parent / "run_hostile.py"
HANG = 20  # seconds: what is read here takes about one
STEPS = 40  # a byte


def outcome(path: Path, reader: str, steps: int = STEPS, text: str = "") -> str:
    """What run_hostile.py says of a file; its traceback where something else than an error of ours came of it."""
    extra = []
    if text:
        (path.parent / "text").write_text(text, "utf-8")
        extra = [str(path.parent / "text")]
    command = [sys.executable, "-W", "error", str(RUN), reader, str(path), str(steps), *extra]
    try:
        done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=HANG)
    except subprocess.TimeoutExpired:
        return "hangs"
    return done.stdout.strip() if not done.returncode else done.stderr[-2000:]


# name -> reader, file, the beginning of what comes of it, steps a byte, text
REFUSED: dict = {
    "a list shared in a pickle": ("pytorch", files.pickle_of_shared_list(30_000, 40_000), "CheckpointError: .*goes through", STEPS),
    "sizes shared in a pickle": ("pytorch", files.pickle_of_shared_sizes(100_000, 40_000), "CheckpointError: ", STEPS),
    "a name shared in a stream": ("pytorch", files.stream_of_shared_key(2_000_000, 900_000), "CheckpointError: ", 0),
    "a storage's long name": ("pytorch", files.pickle_of_long_key(60_000, 100_000), "CheckpointError: ", STEPS),
    "bytes shared in an npz": ("marian npz", files.npz_of_shared_bytes(8000, 1 << 20), "CheckpointError: .*share", 0),
    "a gzipped shortlist": ("shortlist", files.gzipped_shortlist(5_000_000), "CheckpointError: .*unpacks to", 0),
    "a cycle of rules": ("spm", files.spm_of_cycle(), "TokenizerError: ", 300, "a" * 2000),
    "a long replacement": ("spm", files.spm_of_long_replacement(300_000), "TokenizerError: ", 0, "a" * 2000),
    "replacements in a chain": ("tokenizer", files.tokenizer(files.sequence(*[files.replace("a", "a" * 10)] * 9)), "TokenizerError: ", 0, "aaa"),
}  # fmt: skip
READ: dict = {
    "symbols, unigram": ("spm", files.spm_of_symbols(20_000, 1), STEPS, "a" * 500),
    "many symbols, unigram": ("spm", files.spm_of_symbols(200_000, 1), 0, "a" * 500),
    "symbols, bpe": ("spm", files.spm_of_symbols(20_000, 2), STEPS, "a" * 500),
    "symbols, characters": ("spm", files.spm_of_symbols(20_000, 4), STEPS, "a" * 500),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_files_are_refused(tmp_path: Path, name: str) -> None:
    reader, content, expected, steps, *text = REFUSED[name]
    (tmp_path / "file").write_bytes(content)
    import re
    found = outcome(tmp_path / "file", reader, steps, *text)
    assert re.match(expected, found), found


@pytest.mark.parametrize("name", READ)
def test_hostile_files_are_read(tmp_path: Path, name: str) -> None:
    reader, content, steps, *text = READ[name]
    (tmp_path / "file").write_bytes(content)
    assert outcome(tmp_path / "file", reader, steps, *text) == "done"


def test_a_page_of_anchors(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_bytes(b'<a href="wanted.zip">x</a>' + files.page_of_open_anchors(30_000))
    assert outcome(tmp_path / "page.html", "page", 0) == "done"
