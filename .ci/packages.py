"""Installs the packages of a lock into an environment, by uv: it takes a tenth of pip's time.

    .venv/bin/python .ci/packages.py lab.lock

In:  the Python of the environment; a lock with hashes; pip's settings, of which uv gets the index, certificates and proxy.
Out: the packages. Else exit status 1, and a last line that says what to do.
It can be killed at any moment: what was downloaded stays in the environment until all packages are there.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLACE = Path(sys.prefix)
BEGUN = PLACE / ".begun"  # an earlier run was killed, and packages may be half there
DOWNLOADS = PLACE / ".downloads"
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
# Several values: pip has a line for each, uv a separator.
SAME = {
    "index-url": ("UV_DEFAULT_INDEX", ""),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "no-index": ("UV_NO_INDEX", ""),
    "trusted-host": ("UV_INSECURE_HOST", " "),
    "cert": ("SSL_CERT_FILE", ""),
    "client-cert": ("SSL_CLIENT_CERT", ""),
    "proxy": ("ALL_PROXY", ""),
    "timeout": ("UV_HTTP_TIMEOUT", ""),
    "default-timeout": ("UV_HTTP_TIMEOUT", ""),
    "retries": ("UV_HTTP_RETRIES", ""),
}
FAILED = (
    "kqlib: the packages did not come. The lines above say why: a network, a mirror, a proxy's certificate or space on the disk is "
    "missing. What was downloaded is kept: put it right and type make {} again (docs/how-to/fix-your-machine.md)."
)


def main(lock: str, goal: str = "venv") -> int:
    """Install the lock's packages; `goal` is what the reader types to go on."""
    again = BEGUN.exists()
    BEGUN.touch()
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    uv = [str(PLACE / "bin" / "uv"), "pip", "install", "--python", sys.executable, *quiet]
    try:
        _uv(again)
        # PySpark has no wheel, and the lock's setuptools, which is there by then, makes one
        more = ["--require-hashes", "--no-build-isolation-package", "pyspark", *["--reinstall"] * again]
        subprocess.run([*uv, *more, "-r", lock], env=_environment(), check=True)
    except subprocess.CalledProcessError:
        print(FAILED.format(goal), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    shutil.rmtree(DOWNLOADS, ignore_errors=True)
    BEGUN.unlink()
    return 0


def _uv(again: bool) -> None:
    """uv itself comes by pip, as lab.lock names it."""
    found = re.search(r"^uv==.*?(?=^\w|\Z)", (ROOT / "lab.lock").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    own = PLACE / "uv.txt"
    own.write_text(found[0], encoding="utf-8")
    more = ["--quiet", "--no-deps", "--require-hashes", *["--ignore-installed"] * again]
    subprocess.run([*PIP, "install", *more, "-r", own], check=True)
    own.unlink()


def _environment() -> dict[str, str]:
    """Pip's settings in uv's words; what is set for uv itself counts more."""
    where = ssl.get_default_verify_paths()
    system = sys.platform == "darwin" or where.cafile or where.capath
    # the hashes say which package is right, whichever index it comes from
    own = {
        "UV_CACHE_DIR": str(DOWNLOADS),
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_SYSTEM_CERTS": "1" if system else "0",
    }
    return {**own, **_pip_settings(), **os.environ}


def _pip_settings() -> dict[str, str]:
    shown = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True).stdout.splitlines()
    found = dict[str, str]()
    for line in sorted(shown, key=lambda line: line.startswith(":env:")):  # the environment counts more than files
        name, _, value = line.partition("=")
        text = ast.literal_eval(value).strip()
        if (same := SAME.get(name.rpartition(".")[2])) and text:
            found[same[0]] = same[1].join(text.split()) if same[1] else text
    return found


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
