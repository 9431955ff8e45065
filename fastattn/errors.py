"""The errors that fastattn raises on purpose; each message is one line that a user can act on."""


class FastattnError(Exception):
    """Base of all of them; the command line prints its message and exits with ``exit_code``."""

    exit_code = 1


class CheckpointError(FastattnError):
    """A checkpoint that is missing, malformed, incomplete or not supported."""

    exit_code = 3


class TokenizerError(FastattnError):
    """A tokenizer file that cannot be read, or that cannot be reproduced exactly."""

    exit_code = 3


class InputError(FastattnError, ValueError):
    """An argument, option or text that the engine cannot take."""

    exit_code = 2


class DownloadError(FastattnError):
    """A checkpoint that could not be fetched or did not have the expected checksum."""

    exit_code = 4


class ForkError(FastattnError):
    """The engine was used in a forked child where its threads no longer exist."""
