"""Acceptance: named checks of the product against its peers and on corpora, one line each.

    python bench/accept.py --data DIR [NAME...]     run all checks, or those whose names contain a NAME
    python bench/accept.py --list

DIR has flores-dev/flores-dev.{en,pt,zh}, stsb/stsb-en-dev.csv, aren-transliteration/, tatoeba/fra-eng.zip, documents/
(copies of the repositories in bench/checks/forms.py) and trained/{attention,plain}/, which bench.train writes. The
environment should have fastattn and the peers: torch, ctranslate2, onnxruntime, onnx, openvino, nncf,
sentence-transformers, sentencepiece, sacrebleu, e2k, pythainlp; translateLocally is the program that
FASTATTN_TRANSLATELOCALLY names, or on PATH. A line has PASS or FAIL, the check's name and its figures, each with its
target, or SKIP and what is absent; the exit status is the number of failures.
"""

import argparse
import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
if not __package__:  # run as a file: the checks are in this folder's package
    sys.path[0] = str(Path(__file__).resolve().parent.parent)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fastattn-accept-") as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder  # for bench.measure's kernels: Numba's key omits their sources
        return run(parser, options)


def run(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    from bench.checks import CHECKS, Absent, Data

    selected = [check for check in CHECKS if not options.names or any(name in check.name for name in options.names)]
    if options.list:
        for check in selected:
            print(f"{check.name:36} {check.claim}")
        return 0
    if options.data is None or not options.data.is_dir():
        parser.error(f"--data should name the folder of the corpora, got {options.data}")
    if not selected:
        parser.error(f"no check is named like {' or '.join(options.names)}; see --list")
    failures = 0
    for check in selected:
        start = time.perf_counter()
        try:
            passed, figure = check.run(Data(options.data))
        except Absent as reason:
            print(f"SKIP  {check.name}: {reason}", flush=True)
            continue
        except Exception as error:  # noqa: BLE001  a check that breaks is a failed check, the others still run
            passed, figure = False, f"{type(error).__name__}: {error}"
            traceback.print_exc()
        failures += not passed
        print(
            f"{'PASS' if passed else 'FAIL'}  {check.name}: {figure}  [{time.perf_counter() - start:.0f} s]", flush=True
        )
    return failures


if __name__ == "__main__":
    sys.exit(main())
