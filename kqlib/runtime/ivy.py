"""Ivy, which PySpark carries, as one function: coordinates in, jars in a directory out, a count as they come.

Ivy knows the default repository by itself. Java is given the certificates that Python trusts, so that a company's TLS proxy,
known to the system but not to Java, does not stop the fetch.
"""

from __future__ import annotations

import shlex
import ssl
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from kqlib.runtime import java, reaper

SETTINGS = """<ivysettings><settings defaultResolver="central"/>
<resolvers><ibiblio name="central" m2compatible="true" usepoms="{poms}"/></resolvers></ivysettings>"""
MODULE = """<ivy-module version="2.0"><info organisation="kqlib" module="jars"/><configurations><conf name="default"/></configurations>
<dependencies>{dependencies}</dependencies></ivy-module>"""
DEPENDENCY = '<dependency org={org} name={name} rev={rev} conf="default->default" transitive="{transitive}"/>'
SUCCESS = "[SUCCESSFUL"  # Ivy says so once a downloaded jar
PASSWORD = "not-a-secret"  # a trust store holds public certificates only; Java insists on a password


def retrieve(
    coordinates: Iterable[str], work: Path, *, transitive: bool, fetched: Callable[[int], None] = lambda _: None
) -> str:
    """Fetch `group:artifact:version`s into work/lib and return what Ivy said; `fetched` hears how many jars have come so far.

    transitive=False asks for just these jars and reads no description of them: a third of the requests.
    """
    work.mkdir(parents=True, exist_ok=True)
    flag = "true" if transitive else "false"
    parts = [dict(zip(("org", "name", "rev"), map(quoteattr, c.split(":")), strict=True)) for c in coordinates]
    dependencies = "\n".join(DEPENDENCY.format(**part, transitive=flag) for part in parts)
    (work / "settings.xml").write_text(SETTINGS.format(poms=flag))
    (work / "ivy.xml").write_text(MODULE.format(dependencies=dependencies))
    command = [java.find().command, *_trust(work / "trust.p12"), *_proxy(), "-jar", str(_jar())]
    command += shlex.split("-settings settings.xml -ivy ivy.xml -cache cache -confs default -types jar bundle")
    command += ["-retrieve", "lib/[artifact]-[revision].[ext]"]
    log = work / "ivy.log"
    log.unlink(missing_ok=True)
    with reaper.Reaper() as guard:  # a fetch that is interrupted takes its Java along
        child = guard.start("ivy", command, log, cwd=work)
        while child.wait(0.1) is None:
            fetched(_count(log))
    said = log.read_text(errors="replace")
    fetched(said.count(SUCCESS))
    return said


def _count(log: Path) -> int:
    return log.read_bytes().count(SUCCESS.encode()) if log.exists() else 0


def _jar() -> Path:
    spec = find_spec("pyspark")
    assert spec and spec.origin
    return next((Path(spec.origin).parent / "jars").glob("ivy-*.jar"))


def _trust(store: Path) -> list[str]:
    """Java's options that make it trust what Python trusts."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

    trusted = []
    for number, der in enumerate(ssl.create_default_context().get_ca_certs(True)):
        with warnings.catch_warnings():  # a root with an odd serial number is skipped, not complained about
            warnings.simplefilter("error")
            try:
                trusted.append(pkcs12.PKCS12Certificate(x509.load_der_x509_certificate(der), f"c{number}".encode()))
            except (ValueError, Warning):
                continue
    if not trusted:
        return []
    store.write_bytes(pkcs12.serialize_java_truststore(trusted, BestAvailableEncryption(PASSWORD.encode())))
    options = {"trustStore": store.name, "trustStoreType": "PKCS12", "trustStorePassword": PASSWORD}
    return [f"-Djavax.net.ssl.{key}={value}" for key, value in options.items()]


def _proxy() -> list[str]:
    """Java's options for a proxy that Python's environment names."""
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    options = []
    for scheme in ("http", "https"):
        named = getproxies().get(scheme, "")
        at = urlsplit(named if "//" in named else f"//{named}")
        if at.hostname:
            options += [f"-D{scheme}.proxyHost={at.hostname}", f"-D{scheme}.proxyPort={at.port or 80}"]
    return options
