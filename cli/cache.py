"""``fastattn cache``: lists and clears the cache folder."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fastattn.cli.options import Group, declare
from fastattn.cli.printing import say
from fastattn.errors import FastattnError
from fastattn.printable import json_line

if TYPE_CHECKING:
    from fastattn.system.cache_folder import CacheEntry

_DAY_SECONDS = 86_400


@click.group(
    cls=Group,
    invoke_without_command=True,
    epilog="""\b
Examples:
  fastattn cache                              number, size, last use
  fastattn cache --entries                    one by one
  fastattn cache clear --packed
  fastattn cache clear --all --older-than 30  entries not used for 30 days
  fastattn cache clear --all --dry-run        only say what would go

\b
kernels      compiled for a CPU, Numba and fastattn version, and a digest of
             their sources; made again when needed
packed       weights in the kernels' layout, and what loading them has found
             out; made again when needed
checkpoints  models pulled by name; downloaded again when needed
Models of the Hugging Face hub are in huggingface_hub's cache. FASTATTN_CACHE
sets this folder.
""",
)
@declare("""
--entries -> one_by_one: List every entry.
--json -> as_json: List every entry as a line of JSON.
""")
@click.pass_context
def cache(context: click.Context, one_by_one: bool, as_json: bool) -> None:
    """List the cache folder; `fastattn cache clear` deletes from it by kind and age."""
    if context.invoked_subcommand is not None:
        if one_by_one or as_json:
            raise click.UsageError("--entries and --json are for the list, not for clear", context)
        return
    from fastattn.system.cache_folder import KINDS, NOWHERE, cache_contents, cache_root

    entries, foreign_paths = cache_contents()
    if as_json:
        for entry in entries:
            last_use = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(entry.last_used))
            fields = {"kind": entry.kind, "model": _model_name(entry) or None, "bytes": entry.size}
            fields |= {"last_used": last_use, "half_made": entry.half_made, "path": str(entry.path)}
            click.echo(json_line(fields))
        return
    root = cache_root()
    folder = "none: this user has no home folder; FASTATTN_CACHE names one" if root == NOWHERE else root
    say(f"{'cache':<12} {folder}")
    if one_by_one:
        for entry in entries:
            say(_entry_line(entry))
    else:
        for kind in KINDS:
            same_kind = [entry for entry in entries if entry.kind == kind]
            last_use = f", last used {_date(max(entry.last_used for entry in same_kind))}" if same_kind else ""
            say(f"{kind:<12} {_count_and_size(same_kind)}{last_use}")
        say(f"{'in all':<12} {_count_and_size(entries)}")
    if foreign_paths:
        remainder = f" and {len(foreign_paths) - 8} more" if len(foreign_paths) > 8 else ""
        say(f"{'left alone':<12} {', '.join(map(str, foreign_paths[:8]))}{remainder}")


@cache.command(
    epilog="""\b
Examples:
  fastattn cache clear --packed --kernels
  fastattn cache clear --checkpoints --older-than 90 --dry-run

\b
Last use is when an entry was last loaded, or made if the folder cannot be written. Running
programs keep what they have loaded. Entries that another process may still be writing, files
that fastattn did not make, and targets of links are left alone.
"""
)
@declare(
    """
--kernels: Compiled kernels.
--packed: Packed weights.
--checkpoints: Models pulled by name.
--all -> everything: All three.
--older-than DAYS: Only entries not used for DAYS days.
--dry-run: Delete nothing; say what would be deleted.
""",
    older_than={"type": click.IntRange(min=0, max=36_500)},
)
def clear(everything: bool, older_than: int | None, dry_run: bool, **kinds: bool) -> None:
    """Delete the named kinds from the cache folder without asking, and list what was deleted."""
    from fastattn.system.cache_folder import KINDS, cache_contents

    if not (everything or any(kinds.values())):
        raise click.UsageError(f"expected what to clear: {', '.join(f'--{kind}' for kind in KINDS)} or --all")
    latest_use = time.time() - (older_than or 0) * _DAY_SECONDS
    entries = [entry for entry in cache_contents()[0] if everything or kinds[entry.kind]]
    if older_than is not None:
        entries = [entry for entry in entries if entry.last_used <= latest_use]
    removed_entries, failures, verb = [], [], "would remove" if dry_run else "removed"
    for entry in entries:
        if entry.in_progress:
            say(f"{entry.path}: left, a process may still be writing it", err=True)
            continue
        try:
            if not dry_run:
                entry.remove()
        except OSError as error:
            failures.append(f"{entry.path}: {error.strerror or error}")
            continue
        removed_entries.append(entry)
        say(f"{verb} {_entry_line(entry)}")
    say(f"{verb} {_count_and_size(removed_entries)} in all")
    if failures:
        raise FastattnError(f"cannot remove {'; '.join(failures)}")


def _entry_line(entry: "CacheEntry") -> str:
    """An entry as a line: ``packed       17.3 MB  2026-11-22  en-pt, int8``."""
    return f"{entry.kind:<12} {entry.size / 1e6:7,.1f} MB  {_date(entry.last_used)}  {_describe(entry)}"


def _describe(entry: "CacheEntry") -> str:
    if entry.half_made:
        return f"{entry.path.name}, half made"
    model = _model_name(entry)
    if entry.kind != "packed" or entry.path.suffix == ".checkpoint":
        return model or entry.path.name
    precision = entry.path.name.split("-")[1] + "-intgemm" * ("-intgemm-" in entry.path.name)
    return f"{model or entry.path.name[:8]}, {precision}"


def _model_name(entry: "CacheEntry") -> str:
    """The name of an entry's model, as -m takes it; "" for kernels and for files whose model has no name."""
    if entry.kind == "checkpoints" and not entry.half_made:
        return entry.path.name.rpartition("-")[0]
    if entry.kind != "packed" or entry.half_made:
        return ""
    from fastattn.loading.cache_file import read_origin
    from fastattn.weights.download.catalog import checkpoints_folder

    origin = read_origin(entry.path)
    if not origin:
        return ""
    path, folder = Path(origin), checkpoints_folder().absolute()
    if path.is_relative_to(folder):
        return path.relative_to(folder).parts[0].rpartition("-")[0]
    hub_name = next((part.removeprefix("models--") for part in path.parts if part.startswith("models--")), "")
    return hub_name.replace("--", "/") or str(path if path.name.endswith(".argosmodel") else path.parent)


def _count_and_size(entries: "Iterable[CacheEntry]") -> str:
    sizes = [entry.size for entry in entries]
    return f"{len(sizes)} {'entry' if len(sizes) == 1 else 'entries'}, {sum(sizes) / 1e6:,.1f} MB"


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(seconds))
