"""Ivy as one function: what it is asked, what it trusts, that it can be stopped. The Java that it runs is a shell script here."""

import subprocess
from pathlib import Path

import pytest

from kqlib.runtime import ivy

# --- ivy.py: the Java that it runs is a shell script here -------------------------------------------------------------

FAKE_JAVA = """#!/bin/sh
printf '%s\\n' "$@" > arguments
mkdir lib
for each in a b c; do
    echo "downloading $each ..."
    echo "	[SUCCESSFUL ] org.example#$each;1.0!$each.jar (12ms)"
    sleep 0.15
done
{last}
"""


@pytest.fixture
def fake_java(monkeypatch, tmp_path):
    def make(last: str = "") -> None:
        home = tmp_path / "fake java"
        (home / "bin").mkdir(parents=True)
        (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
        (home / "bin" / "java").write_text(FAKE_JAVA.format(last=last))
        (home / "bin" / "java").chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(home))

    return make


def test_ivy_is_asked_for_the_coordinates_and_its_downloads_are_counted_as_they_come(fake_java, tmp_path):
    fake_java()
    work, counts = tmp_path / "work", []
    said = ivy.retrieve(["org.example:a&b:1.0"], work, transitive=False, fetched=counts.append)
    assert counts[-1] == 3
    assert sorted(counts) == counts
    assert len(set(counts)) > 1
    assert said.count("SUCCESSFUL") == 3
    assert 'org="org.example" name="a&amp;b" rev="1.0"' in (work / "ivy.xml").read_text()
    assert 'usepoms="false"' in (work / "settings.xml").read_text()
    arguments = (work / "arguments").read_text().splitlines()
    assert Path(arguments[arguments.index("-jar") + 1]).is_file()
    assert arguments[arguments.index("-types") :][:3] == ["-types", "jar", "bundle"]


def test_an_interrupted_fetch_takes_its_java_along(fake_java, tmp_path, marked, within):
    fake_java("exec sleep 58")

    def interrupt(count: int) -> None:
        if count == 3:
            within(10, lambda: marked.alive("sleep 58"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ivy.retrieve(["org.example:a:1.0"], tmp_path / "work", transitive=True, fetched=interrupt)
    assert marked.alive() == []


def test_the_trust_store_holds_what_python_trusts_and_java_can_read_it(monkeypatch, tmp_path):
    import datetime
    import ssl

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, pkcs12

    from kqlib.runtime import java

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    named = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"company proxy {n}")]) for n in range(3)]
    made = [
        x509.CertificateBuilder(name, name, key.public_key(), 7, now, now + datetime.timedelta(days=1)).sign(
            key, SHA256()
        )
        for name in named
    ]

    class Context:
        def get_ca_certs(self, binary: bool) -> list[bytes]:
            return [*[certificate.public_bytes(Encoding.DER) for certificate in made], b"not a certificate"]

    monkeypatch.setattr(ssl, "create_default_context", Context)
    store = tmp_path / "trust.p12"
    assert ivy._trust(store) == [
        "-Djavax.net.ssl.trustStore=trust.p12",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={ivy.PASSWORD}",
    ]
    read = pkcs12.load_pkcs12(store.read_bytes(), ivy.PASSWORD.encode())
    assert {found.certificate.subject for found in read.additional_certs} == set(named)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    keytool = java.find().home / "bin" / "keytool"
    if keytool.exists():  # Java reads an entry only if it carries the mark of a trusted certificate
        listed = subprocess.run(
            [keytool, "-list", "-keystore", store, "-storetype", "PKCS12", "-storepass", ivy.PASSWORD],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert listed.stdout.count("trustedCertEntry") == 3


def test_where_python_trusts_nobody_java_keeps_its_own_list(monkeypatch, tmp_path):
    import ssl

    class Context:
        def get_ca_certs(self, binary: bool) -> list[bytes]:
            return []

    monkeypatch.setattr(ssl, "create_default_context", Context)
    assert ivy._trust(tmp_path / "trust.p12") == []
    assert not (tmp_path / "trust.p12").exists()


@pytest.mark.parametrize(
    ("env", "options"),
    [
        ({}, []),
        ({"https_proxy": "http://proxy.example:3128"}, ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]),
        ({"https_proxy": "proxy.example:3128"}, ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]),
        ({"http_proxy": "http://proxy.example"}, ["-Dhttp.proxyHost=proxy.example", "-Dhttp.proxyPort=80"]),
        ({"https_proxy": ""}, []),
    ],
)
def test_java_goes_through_the_proxy_that_the_environment_names(monkeypatch, env, options):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert ivy._proxy() == options
