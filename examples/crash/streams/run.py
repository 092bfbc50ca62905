"""Compile StreamsWorker.java once, then become it: Java keeps this process's id, so `kq crash` kills Java itself.

In:  a `processing.guarantee`, and the variables of `kq crash`. Out: nothing; the process is Java then. The classes are in the cache.
"""

import hashlib
import os
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from kqlib.runtime import jars, java, places

SOURCE = Path(__file__).with_name("StreamsWorker.java")
ECJ = "org.eclipse.jdt.internal.compiler.batch.Main"


def run(guarantee: str) -> None:
    """Run the worker with this `processing.guarantee`."""
    command, paths = java.find().command, os.pathsep.join(map(str, jars.fetch("streams")))
    classes = places.cache() / "streams" / hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    if not classes.exists():
        with tempfile.TemporaryDirectory(dir=places.cache()) as fresh:
            subprocess.run([command, "-cp", paths, ECJ, "-17", "-cp", paths, "-d", fresh, SOURCE], check=True)
            classes.parent.mkdir(exist_ok=True)
            with suppress(OSError):  # another process was first
                Path(fresh).rename(classes)
            Path(fresh).mkdir(exist_ok=True)
    state = Path(tempfile.gettempdir()) / os.environ["KQ_GROUP"]  # the same after a restart
    where = f"{classes}{os.pathsep}{paths}"
    os.execv(command, [command, "-XX:+UseSerialGC", "-cp", where, "StreamsWorker", guarantee, str(state)])
