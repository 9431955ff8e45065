"""A column of a Ray Dataset, translated or encoded by a pool of actors."""

from typing import Any

from fastattn.distributed.block_worker import BLOCK_MODELS, BlockModel, make_model
from fastattn.distributed.cluster import ClusterOptions, hosts, pool_of, reach_of
from fastattn.distributed.extra import import_ray
from fastattn.distributed.formats.json_lines import is_text, strings
from fastattn.distributed.model_source import check_reach, digest_of, source_of
from fastattn.errors import InputError, check_count
from fastattn.printable import counted, first_of
from fastattn.weights import download

ROWS = 2048  # of a batch, of which the engine makes batches by tokens


def translate_dataset(
    ds: Any,
    model: str,
    column: str,
    *,
    output_column: str = "translation",
    precision: str = "auto",
    cores: int | None = None,
    actors: int | None = None,
    reach: str | None = None,
    batch_rows: int = ROWS,
    **options: Any,
) -> Any:
    """A ``ray.data.Dataset`` with the translations of a column of texts beside the columns of ``ds``; computed lazily.

    model          a path, a name of the catalog, or OWNER/NAME on the Hugging Face hub
    output_column  of the translations, null where the text is
    cores          of an actor, and its threads; None: as many as keep their speed in one process
    actors         the most at once; None: as many as have room in the cluster
    reach          how the model gets to the hosts: "path" (it is there), "name" (each pulls it), "store" (shipped
                   through the object store); None: "path" where all nodes are one machine, else "store"
    batch_rows     that an actor is given at once; it batches by tokens itself
    options        as of ``Translator.translate``: beam_size, split, target_lang, ...; num_hypotheses above 1 adds
                   the column "hypotheses", return_scores "score" or "scores"; and device, as a Translator's: each
                   actor on a card has it alone
    A text that cannot be translated ends the job with Ray's error, which names it; ``fastattn batch`` leaves such texts
    out. A core at least is left for what makes ``ds``.
    Raises InputError for invalid arguments, CheckpointError for no valid model, FastattnError without Ray.
    """
    columns, cluster = (column, output_column), ClusterOptions(None, actors, cores, reach)
    return _map_column("translate", ds, model, columns, precision, cluster, batch_rows, options)


def encode_dataset(
    ds: Any,
    model: str,
    column: str,
    *,
    output_column: str = "embedding",
    precision: str = "auto",
    cores: int | None = None,
    actors: int | None = None,
    reach: str | None = None,
    batch_rows: int = ROWS,
    **options: Any,
) -> Any:
    """A ``ray.data.Dataset`` with the vectors of a column of texts, lists of fixed size, null where the text is.

    options  as of ``Encoder.encode``: task, prompt, truncate_dim, output_dtype, ...; and device
    Otherwise as ``translate_dataset``.
    """
    columns, cluster = (column, output_column), ClusterOptions(None, actors, cores, reach)
    return _map_column("encode", ds, model, columns, precision, cluster, batch_rows, options)


def _map_column(
    kind: str,
    ds: Any,
    model: str,
    columns: tuple[str, str],
    precision: str,
    cluster: ClusterOptions,
    batch_rows: int,
    options: dict[str, Any],
) -> Any:
    """The dataset with the new columns; ``columns``: the column of the texts, and the new column."""
    ray = import_ray()
    if not isinstance(ds, ray.data.Dataset):
        raise InputError(f"expected a ray.data.Dataset, got {type(ds).__name__}")
    column, output = columns
    for name, value in (("column", column), ("output_column", output)):
        if not isinstance(value, str) or not value:
            raise InputError(f"{name} must be a column's name, got {value!r}")
    if column == output:
        raise InputError(f"output_column must be a new column, got {output!r}, that of the texts")
    check_reach(cluster.reach)
    for name, count in (("cores", cluster.cores), ("actors", cluster.actors), ("batch_rows", batch_rows)):
        if count is not None:
            check_count(name, count)
    names = ds.columns(fetch_if_missing=False)  # None where only computing ``ds`` would show them
    if names is not None:
        _check_column(column, names)
    path = download.resolve(model).absolute()
    digest = digest_of(path)
    loaded: BlockModel = BLOCK_MODELS[kind](path, precision, None, output, options)  # checks the options here
    _check_outputs(loaded, names or [])
    nodes = hosts()
    pool = pool_of(nodes, loaded.layer_weights, cluster, options.get("device", "cpu"))
    actors, cores = pool.actors, pool.cores
    source = source_of(model, path, digest, cluster.reach or reach_of(nodes))
    # If actors had all cores, the tasks that read ``ds`` would wait for a core forever.
    spare = actors * cores < sum(node.cpus for node in nodes)
    if not spare and actors > 1:
        actors, spare = actors - 1, True
    return ds.map_batches(
        BatchWorker,
        fn_constructor_args=(column, kind, source, precision, cores, output, options),
        batch_format="pyarrow",
        batch_size=batch_rows,
        num_cpus=cores if spare else cores - 1,
        num_gpus=pool.cards or None,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=actors, initial_size=actors),
    )


class BatchWorker:
    """A callable class for ``Dataset.map_batches``, from a pyarrow table to the table with new columns."""

    def __init__(self, column: str, *model: Any):
        """``model``: the arguments of ``make_model``."""
        self._column, self._model = column, make_model(*model)

    def __call__(self, table: Any) -> Any:
        _check_outputs(self._model, table.column_names)
        _check_column(self._column, table.column_names)
        texts = table.column(self._column)
        if not is_text(texts.type):
            raise InputError(f"column {self._column!r} should hold texts, holds {texts.type}")
        answers = self._model.answer(strings(texts))
        if answers.faults:
            number, reason = min(answers.faults.items())
            failed = counted(len(answers.faults), "text")
            raise InputError(f"{failed} failed, the first, row {number} of a batch: {reason}")
        for name, values in answers.columns.items():
            table = table.append_column(name, values)
        return table


def _check_outputs(model: BlockModel, names: list[str]) -> None:
    if clash := set(model.outputs) & set(names):
        raise InputError(f"the dataset has a column {sorted(clash)[0]!r} already; name another output_column")


def _check_column(column: str, names: list[str]) -> None:
    if column not in names:
        raise InputError(f"no column {column!r}; the dataset has: {', '.join(first_of(names, 'columns'))}")
