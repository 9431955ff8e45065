"""The cluster of a job: a cluster that runs already, or one of this machine alone that lives as long as the job."""

import contextlib
import io
import logging
import os
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from fastattn.distributed.extra import import_ray
from fastattn.errors import FastattnError
from fastattn.processes.choice import choose_processes
from fastattn.system.cpus import default_threads
from fastattn.system.records import dataclass

if TYPE_CHECKING:
    from io import TextIOBase

_STORE_BYTES = 256 << 20  # the object store of a cluster of this machine alone: block records, perhaps a model
_ANSWER_SECONDS = 10.0  # a cluster must answer within this time
# The first bytes of an HTTP/2 client (RFC 9113, 3.4), with empty settings. A server's first frame is of type 4 too.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@dataclass(frozen=True)
class Host:
    """A machine of the cluster, Ray's node: its name, and how many cores and NVIDIA cards Ray allots there."""

    name: str
    cpus: int
    cards: int = 0


@dataclass(frozen=True)
class ClusterOptions:
    """address  of a Ray cluster; None: RAY_ADDRESS, else this machine alone
    actors   the most actors at once; None: as many as have room
    cores    cores, and so threads, of each actor; None: as many threads as keep their speed in one process
    reach    how the model reaches the hosts, one of REACHES; None: as ``reach_of`` says
    """

    address: str | None = None
    actors: int | None = None
    cores: int | None = None
    reach: str | None = None


@dataclass(frozen=True)
class ActorPool:
    """The most actors at once; cores, and so threads, of each actor; cards of each actor."""

    actors: int
    cores: int
    cards: int = 0


@contextlib.contextmanager
def cluster_hosts(address: str | None) -> Iterator[list[Host]]:
    """Connect to the cluster at ``address``, or start one for this context on this machine. Yields the hosts.

    Raises FastattnError if there is no cluster.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray_hosts()
        return
    address = address_of(address)
    settings: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if address == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else Ray would send statistics
        settings |= {"num_cpus": default_threads(), "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    try:
        _check_reachable(address)
        ray.init(address, **settings)
    except Exception as error:  # noqa: BLE001  Ray raises many classes, also Exception itself
        reason = getattr(error, "strerror", None) or str(error).strip().partition("\n")[0] or type(error).__name__
        failure = "Ray does not start on this machine" if address == "local" else f"no Ray cluster at {address}"
        raise FastattnError(f"{failure}: {reason}") from None
    try:
        yield ray_hosts()
    finally:
        # The shutdown prints messages that Ray has held back, in this thread.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            ray.shutdown()


def address_of(address: str | None) -> str:
    """The address of the cluster; "local": a cluster starts on this machine."""
    return address or os.environ.get("RAY_ADDRESS") or "local"


def _check_reachable(address: str) -> None:
    """Raise OSError if no Ray answers at HOST:PORT, for which Ray would wait minutes; ValueError for a wrong port."""
    host, colon, port = address.rpartition(":")
    if not colon or "://" in address or os.environ.get("RAY_USE_TLS", "0") != "0":
        return
    if not port.isdecimal():
        raise ValueError(f"expected HOST:PORT, got the port {port!r}")
    with socket.create_connection((host.strip("[]"), int(port)), _ANSWER_SECONDS) as connection:
        connection.sendall(_PREFACE)
        if connection.recv(9)[3:4] != _PREFACE[-6:-5]:
            raise ConnectionError("what answers there is no cluster of Ray's")


def ray_hosts() -> list[Host]:
    """The hosts of the cluster on which Ray allots cores."""
    hosts = []
    for node in filter(itemgetter("Alive"), import_ray().nodes()):
        cpus, cards = (int(node["Resources"].get(resource, 0)) for resource in ("CPU", "GPU"))
        if cpus:
            hosts.append(Host(node["NodeManagerHostname"], cpus, cards))
    return hosts


def pool_of(hosts: list[Host], layer_weights: int, options: ClusterOptions, device: str = "cpu") -> ActorPool:
    """The actors for which the hosts have room, with the cores that the options or ``processes/choice.py`` decide.

    device  "cuda": each actor has a card of its own, which Ray hides from other actors; "auto": "cuda" if a host has
            a card, else "cpu"
    """
    if not hosts:
        raise FastattnError("the cluster has no node that gives out CPUs")
    cards = int(device == "cuda" or device == "auto" and any(host.cards for host in hosts))
    if cards:
        hosts = [host for host in hosts if host.cards]
        if not hosts:
            raise FastattnError("device 'cuda' cannot be used: the cluster has no node that gives out a card")
    largest = max(host.cpus for host in hosts)
    cores = options.cores or -(-largest // choose_processes(largest, layer_weights))
    if cores > largest:
        raise FastattnError(f"an actor with {cores} cores has no place: the largest node has {largest}")
    most_actors = sum(min(host.cpus // cores, host.cards if cards else host.cpus) for host in hosts)
    return ActorPool(min(most_actors, options.actors or most_actors), cores, cards)


def reach_of(hosts: list[Host]) -> str:
    """How a model reaches the hosts by default: "path" if all hosts are this machine, else "store"."""
    return "path" if {host.name for host in hosts} == {socket.gethostname()} else "store"


@contextlib.contextmanager
def quiet_ray() -> Iterator[None]:
    """Keep Ray's messages from stdout and stderr: the job reports on each block, and Ray's logs have the messages."""
    if os.environ.get("FASTATTN_DEBUG") or sys.stderr is None:
        yield
        return
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    sys.stderr.flush()
    old_2, devnull = os.dup(2), os.open(os.devnull, os.O_WRONLY)  # a copy of descriptor 2, which is stderr's
    with warnings.catch_warnings(), open(os.dup(old_2), "w", encoding="utf-8", errors="backslashreplace") as stderr:
        warnings.filterwarnings("ignore", module="ray")
        filtered_stderr: Any = sys.stderr
        with contextlib.suppress(OSError, ValueError, AttributeError):  # not every stream has a descriptor
            filtered_stderr = _RayThreadFilter(stderr) if filtered_stderr.fileno() == 2 else filtered_stderr
        filtered_stdout: Any = _RayThreadFilter(sys.stdout)
        os.dup2(devnull, 2)  # compiled parts of Ray write to this descriptor
        try:
            with contextlib.redirect_stderr(filtered_stderr), contextlib.redirect_stdout(filtered_stdout):
                yield
        finally:
            os.dup2(old_2, 2)
            os.close(old_2)
            os.close(devnull)


class _RayThreadFilter:
    """A stream that drops what Ray's threads print: errors of tasks."""

    def __init__(self, stream: "TextIOBase | Any"):
        self._stream = stream

    def write(self, text: str) -> int:
        if not threading.current_thread().name.startswith("ray_"):
            self._stream.write(text)
            self._stream.flush()
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
