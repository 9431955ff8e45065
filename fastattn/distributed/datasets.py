"""A column of a Ray Dataset, translated or encoded by a pool of actors."""

from typing import Any

from fastattn.distributed.block_worker import BLOCK_MODELS, BlockModel, make_model
from fastattn.distributed.cluster import ClusterOptions, pool_of, ray_hosts, reach_of
from fastattn.distributed.extra import import_ray
from fastattn.distributed.formats.json_lines import is_text, text_values
from fastattn.distributed.model_source import check_reach, digest_of, source_of
from fastattn.errors import InputError, check_count
from fastattn.printable import counted, first_of
from fastattn.weights import download

DEFAULT_BATCH_ROWS = 2048  # the engine makes batches of these, by tokens


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
    batch_rows: int = DEFAULT_BATCH_ROWS,
    **options: Any,
) -> Any:
    """A ``ray.data.Dataset`` with the columns of ``ds`` and the translations of a column of texts, computed lazily.

    model          a path, a name of the catalog, or OWNER/NAME on the Hugging Face hub
    output_column  the column of the translations, null where the text is null
    cores          cores, and so threads, of an actor; None: as many as keep their speed in one process
    actors         the most actors at once; None: as many as have room in the cluster
    reach          how the model gets to the hosts: "path" (it lies there), "name" (each host pulls it), "store" (Ray's
                   object store ships it); None: "path" if all hosts are this machine, else "store"
    batch_rows     rows that an actor gets at once, of which it makes batches by tokens
    options        those of ``Translator.translate``: beam_size, split, target_lang, ...; num_hypotheses above 1 adds
                   the column "hypotheses", return_scores "score" or "scores"; and device, as a Translator's: each
                   actor on a card has the card alone
    A text that cannot be translated ends the job with Ray's error, which names the text; ``fastattn batch`` leaves such
    texts out. At least one core stays free for the tasks that make ``ds``.
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
    batch_rows: int = DEFAULT_BATCH_ROWS,
    **options: Any,
) -> Any:
    """A ``ray.data.Dataset`` with the vectors of a column of texts, lists of fixed size, null where the text is null.

    options  those of ``Encoder.encode``: task, prompt, truncate_dim, output_dtype, ...; and device
    All else is as in ``translate_dataset``.
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
    """The dataset with the new columns. ``columns``: the column of the texts, then the new column."""
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
    names = ds.columns(fetch_if_missing=False)  # None if the names are known only once ``ds`` is computed
    if names is not None:
        _check_column(column, names)
    path = download.resolve(model).absolute()
    digest = digest_of(path)
    block_model: BlockModel = BLOCK_MODELS[kind](path, precision, None, output, options)  # checks the options here
    _check_outputs(block_model, names or [])
    hosts = ray_hosts()
    pool = pool_of(hosts, block_model.layer_weights, cluster, options.get("device", "cpu"))
    actors, cores = pool.actors, pool.cores
    source = source_of(model, path, digest, cluster.reach or reach_of(hosts))
    # If the actors had all cores, the tasks that make ``ds`` would wait for a core forever.
    has_free_core = actors * cores < sum(host.cpus for host in hosts)
    if not has_free_core and actors > 1:
        actors, has_free_core = actors - 1, True
    return ds.map_batches(
        BatchWorker,
        fn_constructor_args=(column, kind, source, precision, cores, output, options),
        batch_format="pyarrow",
        batch_size=batch_rows,
        num_cpus=cores if has_free_core else cores - 1,
        num_gpus=pool.cards or None,
        compute=ray.data.ActorPoolStrategy(min_size=1, max_size=actors, initial_size=actors),
    )


class BatchWorker:
    """A callable class for ``Dataset.map_batches``, which adds the new columns to a pyarrow table."""

    def __init__(self, column: str, *model: Any):
        """``model``: the arguments of ``make_model``."""
        self._column, self._model = column, make_model(*model)

    def __call__(self, table: Any) -> Any:
        _check_outputs(self._model, table.column_names)
        _check_column(self._column, table.column_names)
        texts = table.column(self._column)
        if not is_text(texts.type):
            raise InputError(f"column {self._column!r} should hold texts, holds {texts.type}")
        answers = self._model.answer(text_values(texts))
        if answers.faults:
            number, reason = min(answers.faults.items())
            count_text = counted(len(answers.faults), "text")
            raise InputError(f"{count_text} failed, the first, row {number} of a batch: {reason}")
        for name, values in answers.columns.items():
            table = table.append_column(name, values)
        return table


def _check_outputs(model: BlockModel, names: list[str]) -> None:
    if duplicates := set(model.outputs) & set(names):
        raise InputError(f"the dataset has a column {sorted(duplicates)[0]!r} already; name another output_column")


def _check_column(column: str, names: list[str]) -> None:
    if column not in names:
        raise InputError(f"no column {column!r}; the dataset has: {', '.join(first_of(names, 'columns'))}")
