"""Benchmarks of fastattn against NumPy and other engines, if they are installed.

    python -m bench [PART...]                 run all parts, or those named; print and write the tables
    python -m bench --list                    the parts
    python -m bench report RESULTS.json       write RESULTS.md and the plots from earlier results
    python -m bench mechanisms [DOCUMENT]     every attention mechanism against plain NumPy; into a document's table
    python -m bench growth [DOCUMENT]         attention's time and memory over the positions; into a document's table
                                              and pictures/growth.svg beside the document
    python -m bench lock [DOCUMENT]           how long the interpreter's lock is held, and the speed of 8 to 64 cores
                                              predicted from that; into a document's table
    python -m bench cluster [DOCUMENT]        time and cost of 10^9 sentences on 1, 10 and 100 machines, computed from
                                              what one actor does here; into a document's tables
    python -m bench budget [MODEL]            where the time of a translation and of a start goes (default en-pt)
    python -m bench summary                   the tables of README.md and docs/performance.md, from bench/results
    python -m bench gallery [FOLDER]          the pictures of docs/attention.md (default docs/pictures)

Engines alternate in one process; figures are medians, ratios are of medians in one run. Peak arithmetic and memory
bandwidth are measured in the same process. Progress goes to stderr, the tables to stdout. The exit status is 1 if a
part failed or two engines' results differ.
"""

import argparse
import io
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 256


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--list", action="store_true", help="list the parts")
    parser.add_argument("--quick", action="store_true", help="a minute in all, few rounds")
    parser.add_argument("--toy", action="store_true", help="next to nothing: only that everything works")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name contains it")
    parser.add_argument("--threads", type=_counts, metavar="N,N", help="numbers of threads (default 1, 2, 4 .. CPUs)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go (default build/bench)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="holds flores-dev/flores-dev.{en,zh}")
    parser.add_argument("--encoder", default="minilm", metavar="MODEL", help="a BERT encoder (default minilm)")
    parser.add_argument("--translator", default="zh-en", metavar="MODEL", help="a translator (default zh-en)")
    parser.add_argument("--light", default="en-pt", metavar="MODEL", help="a Firefox model (default en-pt)")
    parser.add_argument(
        "--bandwidth", type=float, default=200.0, metavar="GB/S", help="lock: of the memory (default 200, a server's)"
    )
    parser.add_argument(
        "--price", type=float, default=0.68, metavar="DOLLARS", help="cluster: of a machine of 16 cores, an hour"
    )
    options = parser.parse_args()
    from bench.orchestra import PARTS

    if options.list:
        for part in PARTS.values():
            print(f"{part.name:12} {part.claim}")
        return 0
    if options.parts[:1] and options.parts[0] in COMMANDS:
        return _command(parser, options, *options.parts)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; there are {', '.join((*PARTS, *COMMANDS))}")
    if options.data is not None and not (options.data / "flores-dev").is_dir():
        parser.error(f"--data should name a folder that holds flores-dev, got {options.data}")
    return _run(options)


def _counts(text: str) -> list[int]:
    counts = sorted({int(part) for part in text.split(",")})
    if not counts or not 1 <= counts[0] <= counts[-1] <= LARGEST:
        raise argparse.ArgumentTypeError(f"expected numbers from 1 to {LARGEST}, got {text!r}")
    return counts


def _run(options: argparse.Namespace) -> int:
    from bench.machine import describe
    from bench.orchestra import PARTS, run_parts
    from bench.report import markdown, write

    begun = time.monotonic()
    results = {"quick": options.quick or options.toy, **describe(), "runs": []}
    results |= run_parts(options, [PARTS[name] for name in options.parts or PARTS])
    results["seconds"] = round(time.monotonic() - begun, 1)
    folder = options.out or ROOT / "build" / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    write(results, folder)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # like RESULTS.md, whatever the locale
    print(markdown(results))
    print(f"written: {', '.join(sorted(str(path) for path in folder.iterdir() if path.is_file()))}", file=sys.stderr)
    return int(bool(results["failures"]))


COMMANDS = ("mechanisms", "growth", "lock", "cluster", "budget", "gallery", "report", "summary")


def _command(
    parser: argparse.ArgumentParser, options: argparse.Namespace, name: str, argument: str = "", *more: str
) -> int:
    """One of COMMANDS with its argument: a document, a model, a folder or results."""
    from bench import budget, cluster, gallery, growth, lock, mechanisms, report, summary
    from fastattn.runtime.threads import thread_limit

    if more:
        parser.error(f"{name} takes one argument at most")
    size = "toy" if options.toy else "quick" if options.quick else "full"
    threads = options.threads[-1] if options.threads else 0
    if name == "report":
        try:
            results = json.loads(Path(argument).read_text(encoding="utf-8"))
            results["runs"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            parser.error(f"expected the results.json of an earlier run, got {argument} ({error})")
        folder = options.out or Path(argument).parent
        folder.mkdir(parents=True, exist_ok=True)
        report.write(results, folder)
        return 0
    if name == "summary":
        return summary.run()
    if name == "budget":
        return budget.run(size, argument or "en-pt", threads or 1, options.data)
    if name == "gallery":
        folder = Path(argument or ROOT / "docs" / "pictures")
        print(f"written: {len(gallery.write(folder))} pictures in {folder}")
        return 0
    document = Path(argument) if argument else None
    if document and not document.is_file():
        parser.error(f"{name} takes a document, a file that is there, got {document}")
    if name == "lock":
        return lock.run(size, options.only, options.data, 1e9 * options.bandwidth, document)
    if name == "cluster":
        return cluster.run(size, options.only, options.data, options.price, document)
    if name == "growth":
        return growth.run(size, threads or thread_limit(), document)
    return mechanisms.run(size, threads or thread_limit(), options.only, document)


if __name__ == "__main__":
    sys.exit(main())
