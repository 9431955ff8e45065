"""A corpus that streams through a job, and the memory of all its processes."""

import random
import time

import pytest

pytest.importorskip("ray", reason="needs the extra fastattn[ray]")

import pyarrow as pa
import pyarrow.parquet as pq

from bench.processes import marked
from tests.distributed import nodes

FILES, ROWS, PAGE = 4, 6000, 64 << 10  # 1.6 GB of text, most of it carried through
MOST = 1 << 30  # bytes of a process


@pytest.mark.slow
def test_no_process_holds_more_than_a_few_blocks(pulled, tmp_path, monkeypatch):
    chance = random.Random(3)
    pool = "".join(chance.choices("abcdefgh ", k=4 << 20))
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        begins = [chance.randrange(len(pool) - PAGE) for _ in range(ROWS)]
        texts = [pool[begin : begin + 20] for begin in begins]
        table = pa.table({"text": texts, "page": [pool[begin : begin + PAGE] for begin in begins]})
        pq.write_table(table, tmp_path / "in" / f"{number}.parquet", row_group_size=500, use_dictionary=False)
    environment, mark = nodes.marked_environment()
    out = tmp_path / "out"
    process = nodes.command("encode", tmp_path / "in", "--out", out, "-m", pulled("minilm"), env=environment)
    most: dict[str, int] = {}
    while process.poll() is None:
        for found in marked(mark):
            most[found.title[:80]] = max(most.get(found.title[:80], 0), found.resident)
        time.sleep(0.1)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert sum(pq.read_metadata(part).num_rows for part in out.glob("part-*")) == FILES * ROWS
    assert any("BlockWorker" in title for title in most)
    assert {title: resident for title, resident in most.items() if resident > MOST} == {}
