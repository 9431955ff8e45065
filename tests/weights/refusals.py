"""How a checkpoint that cannot be read is refused."""

from pathlib import Path

import pytest

from fastattn import weights
from fastattn.errors import CheckpointError
from tests.messages import refused


def refusal(path: Path, said: str | None = None, names_path: bool = True) -> str:
    """The one line that says why a checkpoint is refused.

    said        a regular expression that is found in it
    names_path  whether it says where the checkpoint is
    """
    with pytest.raises(CheckpointError, match=said) as caught:
        weights.read(path)
    message = str(caught.value)
    assert "\n" not in message and (str(path) in message or not names_path)
    return message


def refuses(path: Path, *named: str, part: str | None = None) -> None:
    """The checkpoint there is refused, with its path and all that is `named` in a message that the golden file has."""
    with refused(CheckpointError, str(path), *named):
        weights.read(path, **({"part": part} if part else {}))
