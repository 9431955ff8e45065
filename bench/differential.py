"""Random configurations and inputs through fastattn and the installed source frameworks; what differs is made small.

    python bench/differential.py --minutes 10
    python bench/differential.py --minutes 5 --kind decoders --kind seq2seq --seed 1200
    python bench/differential.py --kind decoders --seed 1234 --cases 1

Runs where both are installed. Case after case is drawn from its seed: a base, such as a model type, and values for some
of its settings. Of one that differs, settings are taken back while it still does; what is left is printed once. What
fastattn refuses with an error is listed by the error; what the framework refuses, or fails at, is skipped. GGUF files
need the package gguf, pictures Pillow. The exit status is 1 if something differs.
"""

import argparse
import importlib
import logging
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

if not __package__:  # run as a file: what it imports is in this folder's package
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.differences import Case, Skipped
from fastattn.errors import FastattnError

KINDS = ("chat", "decoders", "encoders", "gguf", "heads", "images", "seq2seq")
MOST_CHOICES = 5


def draw(kind: str, module: Any, seed: int) -> Case:
    rng = random.Random(seed)
    base = rng.choice(sorted(module.CHOICES))
    settings = module.CHOICES[base]
    names = rng.sample(sorted(settings), rng.randint(0, min(MOST_CHOICES, len(settings))))
    return Case(kind, base, seed, {name: rng.choice(settings[name]) for name in names})


def outcome(module: Any, case: Case) -> tuple[str, str]:
    """("same", "skipped", "refused", "different" or "crashed", why)."""
    folder = Path(tempfile.mkdtemp(prefix="differential-"))
    try:
        why = module.compare(case, folder)
        return ("different", why) if why else ("same", "")
    except Skipped as error:
        return "skipped", str(error)
    except FastattnError as error:
        return "refused", str(error).replace(str(folder), "FOLDER")
    except Exception:  # noqa: BLE001 - of whatever kind: it is what is looked for
        return "crashed", traceback.format_exc(limit=-3)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def reduced(module: Any, case: Case, how: str) -> Case:
    for name in list(case.chosen):
        fewer = replace(case, chosen={key: value for key, value in case.chosen.items() if key != name})
        if outcome(module, fewer)[0] == how:
            case = fewer
    return case


def run(kinds: list[str], seed: int, cases: int, deadline: float) -> bool:
    modules = {kind: importlib.import_module(f"bench.differences.{kind}") for kind in kinds}
    counts, refusals, shown = Counter[tuple[str, str]](), Counter[str](), set[str]()
    for number in range(seed, seed + cases):
        if time.monotonic() > deadline:
            break
        kind = kinds[number % len(kinds)]
        case = draw(kind, modules[kind], number)
        how, why = outcome(modules[kind], case)
        counts[kind, how] += 1
        if how in ("refused", "skipped"):
            refusals[f"{how} {kind} {case.base}: {why[:200]}"] += 1
        elif how in ("different", "crashed"):
            case = reduced(modules[kind], case, how)
            what = f"{kind} {case.base} {dict(case.chosen)}"
            if what not in shown:
                print(f"{how}: seed {number}, {what}: {outcome(modules[kind], case)[1]}", flush=True)
            shown.add(what)
    for why, count in refusals.most_common():
        print(f"{count} x {why}")
    for kind in kinds:
        outcomes = sorted((how, count) for (name, how), count in counts.items() if name == kind)
        print(f"{kind}: " + ", ".join(f"{count} {how}" for how, count in outcomes))
    print(f"next seed: {seed + sum(counts.values())}")
    return not any(how in ("different", "crashed") for _, how in counts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kind", action="append", choices=KINDS, help="one of them; may be given again (all)")
    parser.add_argument("--seed", type=int, default=0, help="of the first case (0)")
    parser.add_argument("--cases", type=int, default=1_000_000, help="at most so many")
    options = parser.parse_args()
    os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_PROGRESS_BARS="1", TRANSFORMERS_VERBOSITY="error")
    logging.disable(logging.WARNING)
    same = run(options.kind or list(KINDS), options.seed, options.cases, time.monotonic() + 60 * options.minutes)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
