"""The CPU's name and features: LLVM is asked once for each CPU and version, and the cache folder keeps the answer."""

import hashlib
from pathlib import Path

import pytest

from fastattn.simd import host as module
from fastattn.simd.host import HostCPU, host


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is asked of LLVM, with an empty cache folder."""
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path))
    questions: list[int] = []
    ask = module._ask
    monkeypatch.setattr(module, "_ask", lambda: questions.append(1) or ask())
    return questions


@pytest.mark.skipif(module._path() is None, reason="Linux describes the CPU")
def test_llvm_is_asked_once_for_each_cpu_and_version(
    questions: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = host.__wrapped__()
    (file,) = (tmp_path / "kernels").iterdir()
    assert [host.__wrapped__() for _ in range(3)] == [answer] * 3 and questions == [1]
    monkeypatch.setattr(module.llvmlite, "__version__", "0.0.1")
    assert host.__wrapped__() == answer and len(questions) == 2
    monkeypatch.undo()
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path))
    whole = file.read_text()
    for text in ("", whole[:-1], whole.partition("\n")[2], whole.replace("+", "-", 1)):
        file.write_text(text)
        assert host.__wrapped__() == answer and file.read_text() == whole, "a damaged file is written anew"
    known = HostCPU("x86_64-linux", "zen9", "+avx9,-avx")
    content = "\n".join(known)
    file.write_text(f"{hashlib.sha256(content.encode()).hexdigest()}\n{content}")
    assert host.__wrapped__() == known
    file.chmod(0o666)
    assert host.__wrapped__() == answer, "others may have written it"


@pytest.mark.skipif(module._path() is None, reason="Linux describes the CPU")
def test_another_cpu_has_another_file(questions: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = "processor : 0\nvendor_id\t: GenuineIntel\nmodel\t\t: {}\nflags\t\t: fpu {}\ncpu MHz\t\t: {}\n\n"
    files = {}
    for number, values in enumerate([(1, "avx", 9), (1, "avx", 8), (2, "avx", 9), (1, "avx avx2", 9)]):
        path = tmp_path / str(number)
        path.write_text(cpu.format(*values) * 2)
        monkeypatch.setattr(module, "_DESCRIPTION", str(path))
        files[values] = module._path()
    assert files[1, "avx", 9] == files[1, "avx", 8] and len(set(files.values())) == 3
    for text in (None, "", "processor : 0\n"):
        path = tmp_path / "none"
        if text is not None:
            path.write_text(text)
        monkeypatch.setattr(module, "_DESCRIPTION", str(path))
        assert module._path() is None
    assert host.__wrapped__() == module._ask() and not (tmp_path / "kernels").exists()
