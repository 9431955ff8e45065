"""Without the extra the room is imported, and says what it lacks when it is used."""

import subprocess
import sys

import pytest

from fastattn.distributed.formats import read_block
from fastattn.distributed.formats.blocks import CorpusBlock
from fastattn.distributed.storage import find_files
from fastattn.errors import FastattnError


@pytest.mark.parametrize(
    "use", [lambda: find_files(["a.txt"]), lambda: read_block(CorpusBlock(0, "a.txt", "text", 0, 1, 1), "text")]
)
def test_what_needs_pyarrow_names_the_extra(monkeypatch, use):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FastattnError, match=r"^fastattn.distributed needs the extra: pip install 'fastattn\[ray\]' \("):
        use()


def test_modules_are_imported_without_it():
    code = (
        "import sys; sys.modules['pyarrow'] = sys.modules['ray'] = None\n"
        "import fastattn.distributed.formats, fastattn.distributed.storage"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
