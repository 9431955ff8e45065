"""The benchmark's harness on next to nothing: what it writes, its report of the results, two commits, assembly."""

import json
import os
import re
import subprocess
import sys

import numba
import numpy as np
import pytest

from bench import assembly
from bench.operations import OPERATIONS
from fastattn.simd.arithmetic import arithmetic_for
from fastattn.simd.tile import PRECISIONS
from tests import ROOT
from tests.children import run_child


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What a run of toy sizes has written."""
    folder, models = tmp_path_factory.mktemp("bench"), str(tmp_path_factory.mktemp("none"))
    command = [sys.executable, "-m", "bench", "kernels", "lengths", "resources", "--toy", "--threads", "1,2"]
    command += ["--encoder", models, "--translator", models]  # memory is that of attention alone, in this size
    subprocess.run([*command, "--out", str(folder)], cwd=ROOT, check=True)
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))


@pytest.mark.slow
def test_results_hold_every_kernel_with_its_samples(results):
    kernels = [one for one in results["runs"] if one["part"] == "kernels"]
    runs = [(one["precision"], one["threads"]) for one in kernels]
    assert runs == [(precision, threads) for precision in ("float32", "bfloat16", "int8", "int4") for threads in (1, 2)]
    for one in kernels:
        assert one["peak_flops"] > 0 and one["bandwidth"] > 0
        operations = {row["name"].split()[0] for row in one["rows"]}
        every = {name for name, operation in OPERATIONS.items() if operation.toy}
        assert every >= {"linear", "attention", "attention_step", "layer_norm", "embed", "project_top_k", "recur"}
        few = {"convolve", "linear", "recur"}
        assert operations == {"float32": every, "int4": {"linear"}}.get(one["precision"], few)
        for row in one["rows"]:
            for name in ("fastattn", "NumPy"):
                side = row["sides"][name]
                assert side["seconds"] == np.median(side["samples"]) > 0
            assert row["sides"]["NumPy"]["agrees"]
    assert results["failures"] == []
    assert results["machine"]["processors"] >= 1 and results["versions"]["numpy"] == np.__version__


def test_what_is_timed_has_a_toy_size():
    assert [name for name, operation in OPERATIONS.items() if bool(operation.toy) != bool(operation.large)] == []


def test_a_precision_is_held_to_a_peak_of_its_own(monkeypatch):
    """What its own tile does in the best of several runs: a share of another precision's peak would flatter."""
    from bench import measure, run_cases
    from bench.request import Request

    def once(call):
        call()
        return next(seconds)

    monkeypatch.setattr(measure, "_multiply", lambda a, b, step, c, repeats: ran.append((numba.typeof(b), repeats)))
    monkeypatch.setattr(measure, "once", once)
    monkeypatch.setattr(run_cases, "bandwidth", lambda *_: 1.0)
    for precision in ("float32", "bfloat16", "int8"):
        ran, seconds = [], iter([0.5, 0.25, 1.0] * 8)  # of two measurements of twelve runs
        peak = run_cases.measured(Request("kernels", 2, size="toy", precision=precision), [], 1, 0.0, 0.0)["peak_flops"]
        ((operands, repeats),) = set(ran)
        assert PRECISIONS[operands.dtype] == precision
        rows, columns, steps = measure.tile_size(precision)
        assert peak == 2 * repeats * 2 * rows * columns * steps * arithmetic_for(precision).group / 0.25


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_the_tile_of_every_precision_runs_here(precision):
    from bench import measure

    run, work = measure.bare_tile(1, precision, share=1e-3)
    run()
    rows, columns, steps = measure.tile_size(precision)
    assert work >= 2 * rows * columns * steps and work % (2 * rows * columns * steps) == 0


def test_the_report_in_the_tree_is_made_of_the_results_beside_it(tmp_path, bench):
    kept = ROOT / "bench" / "results" / "amd-zen5"
    done = bench("report", kept / "results.json", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    others = {"results.json", "mechanisms.md", "lock.md", "cluster.md"}  # of other commands
    assert made == {path.name: path.read_text(encoding="utf-8") for path in kept.iterdir() if path.name not in others}


def test_usage_errors_say_what_is_expected(tmp_path, bench):
    broken = tmp_path / "results.json"
    broken.write_text("[]")
    for arguments, message in (
        (["nothing"], "no part 'nothing'; there are kernels, lengths, encode, translate, light"),
        (["--data", tmp_path], "--data should name a folder that holds flores-dev"),
        (["--threads", "0"], "expected numbers from 1 to"),
        (["report", broken], "expected the results.json of an earlier run"),
    ):
        done = bench(*arguments)
        assert done.returncode == 2 and message in done.stderr


def test_a_side_that_differs_is_a_failure():
    from bench.case import Case, Side, run_case
    from bench.orchestra import _failures

    ones = np.ones(3, np.float32)
    sides = {
        "fastattn": Side({"": lambda: ones}),
        "right": Side({"slow": lambda: sum(range(20000)) * 0 + ones, "quick": lambda: ones}),
        "wrong": Side({"": lambda: ones * 1.01}),
        "missing": Side(absent="not installed"),
    }
    row = run_case(Case("toy", 1.0, "GB/s", sides), rounds=3, seconds=0.1, pause=0.0)
    assert row["sides"]["right"]["setting"] == "quick" and row["sides"]["right"]["agrees"]
    assert row["sides"]["missing"] == {"absent": "not installed"}
    assert _failures([{"part": "kernels", "rows": [row]}]) == ["toy, wrong: 1e-02"]
    assert _failures([{"part": "lengths", "item": "", "failed": "ended"}]) == ["lengths : ended"]


def test_built_in_sentences_are_as_many_and_as_different_as_asked(tmp_path):
    from bench.sentences import sentences

    assert len(set(sentences("en", 256))) == 256 and len(set(sentences("zh", 64))) == 64
    assert len(sentences("zh", 70)) == 70
    (tmp_path / "flores-dev").mkdir()
    (tmp_path / "flores-dev" / "flores-dev.en").write_text("one\ntwo\nthree\n", encoding="utf-8")
    assert sentences("en", 2, tmp_path) == ["one", "two"]


def test_sampling_alternates_and_keeps_one_sample_of_what_is_slow():
    from bench.timing import sample

    order = []
    calls = {name: lambda name=name: order.append(name) for name in ("a", "b", "slow")}
    times = sample(calls, {"a": 0.1, "b": 0.1, "slow": 60.0}, rounds=3, seconds=100.0)
    assert order == ["a", "b"] * 3 and len(times["a"]) == 3
    assert sample(calls, {"a": 0.1, "b": 0.1, "slow": 60.0}, rounds=1, seconds=10.0)["slow"] == [60.0]


def commits(*arguments: str) -> subprocess.CompletedProcess:
    is_clone = not subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True).returncode
    if not (is_clone and os.access(ROOT, os.W_OK)):
        pytest.skip("not a git clone that may be written to")
    command = [sys.executable, "-m", "bench.commits", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8")


@pytest.mark.slow
def test_a_commit_beside_itself() -> None:
    done = commits("HEAD", "HEAD", "--only", "attention one head causal", "--rounds", "1", "--threads", "1")
    assert (done.returncode, done.stderr) == (0, "")
    figures = [re.sub(r"\d+\.\d+", "#", line) for line in done.stdout.splitlines()]
    assert figures == [" #  attention one head causal, 1 thread: # -> # ms", " #  peak memory, 1 thread: # -> # MB"]


def test_no_commit() -> None:
    done = commits("nothing")
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("expected a commit of this repository: ") and "Traceback" not in done.stderr


SHOW = """
import sys
import numpy as np
from bench import assembly
from fastattn.ops import cpu as operations
assembly.compile_all = lambda: operations.seen_around(np.array([0, 2]), np.array([9]), np.zeros(1, np.int64), -1, 0)
sys.argv[1:] = ["sentences._see"]
assert assembly.main() == 0
"""


def test_the_assembly_of_a_kernel_is_shown() -> None:
    shown = run_child(SHOW.replace("assert", "sys.stderr = sys.stdout\nassert"))
    assert shown.startswith("compiling every kernel\n# sentences._see l1C,l1C,l1C,")
    assert shown.count("# sentences._see ") == 1 and "fastattn.sentences._see." in shown and "ret" in shown


def test_an_unknown_kernel_is_told_of_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert assembly.show(["norm._normal"]) == 2
    assert capsys.readouterr().err.startswith("no kernel 'norm._normal'; there are: ")
