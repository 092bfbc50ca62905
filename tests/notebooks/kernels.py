"""Running a notebook in a kernel of its own, always the same way, and finding what it left behind.

In: a notebook. Out: the notebook with its outputs; the processes and files of that kernel which outlived it. A kernel
works in a scratch directory and carries a mark in its environment, so that only its own descendants are ever looked at.
"""

from __future__ import annotations

import asyncio
import copy
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbclient
import psutil
from jupyter_client import AsyncKernelManager
from nbformat import NotebookNode
from nbval.kernel import CURRENT_ENV_KERNEL_NAME, NbvalKernelspecManager

from tests.conftest import Marked
from tests.patience import PATIENCE

from .page import REPO

CELL_SECONDS = int(120 * PATIENCE)  # nbval gets the same
GONE_SECONDS = 3.0 * PATIENCE  # the promise: every JVM is gone within 3 s of its kernel
SOON = 5.0 * PATIENCE  # where only the orphan matters, and not how fast it goes
ELSEWHERE = ("KQ_BOOTSTRAP", "KQ_KAFKA_CONFIG", "KQ_SPARK_MASTER")  # the maker's own clusters are not the notebooks'


@dataclass(frozen=True)
class Scratch:
    """Where kernels work: a directory for all that they make, and the mark that their processes carry."""

    marked: Marked
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a kernel: as nbval's (PYTEST_CURRENT_TEST), with the checkout's profile, no progress."""
        kept = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
        return {
            **kept,
            **self.marked.env,
            "IPYTHONDIR": str(REPO / ".ipython"),
            "KQ_STATE": str(self.folder / "state"),
            "TMPDIR": str(self.folder / "tmp"),
            "PYTEST_CURRENT_TEST": os.environ.get("PYTEST_CURRENT_TEST", "notebooks"),
        }

    def end(self) -> None:
        """End everything that carries the mark, by its id."""
        for _ in range(20):  # one may start another meanwhile
            for process in (alive := self.marked.alive()):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            if not alive:
                return
            time.sleep(0.05)

    def left(self, seconds: float = SOON) -> list[str]:
        """What is still there after `seconds`, in words: processes, then files in the temporary directory."""
        deadline = time.monotonic() + seconds
        while (found := self._left_now()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _left_now(self) -> list[str]:
        alive = [f"process {process.pid}: {_command(process)}" for process in self.marked.alive()]
        return alive + [f"left in TMPDIR: {path.name}" for path in sorted((self.folder / "tmp").iterdir())]


def _command(process: psutil.Process) -> str:
    try:
        words = process.cmdline()
    except psutil.Error:
        words = []
    return " ".join([Path(words[0]).name, *words[1:]])[:160] if words else "(ended)"


@contextmanager
def scratch() -> Iterator[Scratch]:
    """A scratch directory and its mark; at the end, what still runs with this mark is ended, by its id."""
    place = Scratch(Marked(uuid.uuid4().hex), Path(tempfile.mkdtemp(prefix="kq-notebooks-")))
    (place.folder / "tmp").mkdir()
    (place.folder / "state").mkdir()
    try:
        yield place
    finally:
        place.end()
        shutil.rmtree(place.folder, ignore_errors=True)


def sockets() -> dict[str, Any]:
    """A kernel listens at files: another program may take a port between its choice and the kernel's start."""
    return {"transport": "ipc", "ip": str(Path(tempfile.gettempdir(), f"kernel-{uuid.uuid4().hex[:12]}"))}


class ThisPython(AsyncKernelManager):
    """Starts kernels of this very Python (as nbval does), whatever kernels the machine has installed."""

    def __init__(self, **options: Any) -> None:
        chosen = {"kernel_name": CURRENT_ENV_KERNEL_NAME, "kernel_spec_manager": NbvalKernelspecManager()}
        super().__init__(**(options | chosen | sockets()))


def client(nb: NotebookNode, folder: Path, *, errors: bool = False) -> nbclient.NotebookClient:
    """A client that will run this notebook in `folder`; with `errors` it goes on after a failing cell."""
    return nbclient.NotebookClient(
        nb,
        kernel_manager_class=ThisPython,
        kernel_name=CURRENT_ENV_KERNEL_NAME,
        resources={"metadata": {"path": str(folder)}},
        timeout=2 * CELL_SECONDS,  # several notebooks at a time, and who remakes them may have other work
        allow_errors=errors,
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=False,  # `stored` joins neighbours only: a picture between two lines stays there
        shutdown_kernel="immediate",  # SIGKILL, as nbval ends it
    )


def run(nb: NotebookNode, folder: Path, place: Scratch, *, errors: bool = False) -> NotebookNode:
    """The notebook as it is after running all its cells."""
    nb = copy.deepcopy(nb)
    asyncio.run(client(nb, folder, errors=errors).async_execute(env=place.environment))
    return nb
