"""``fastattn warmup``: compile every kernel now, so that no later run has to."""

import click


@click.command()
def warmup() -> None:
    """Compile all kernels for this machine now."""
