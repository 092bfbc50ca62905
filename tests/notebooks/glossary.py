"""docs/glossary.md: each term with the sentence that defines it, and a link to the section of the notebook where it stands.

    python -m tests.notebooks.glossary     # writes the page; `make notebooks` does so as well

In:  the prose of the notebooks, in reading order. Out: the page. A definition is the first sentence in which a term of `TERMS` is
emphasised, *so* or **so**. A term that no notebook defines is left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

from .gate import notebooks
from .page import REPO
from .prose import _CODE, _END, _PART, read

PAGE = REPO / "docs" / "glossary.md"
HEAD = """\
# Glossary

Each term in the sentence that defines it, with a link to its place. Made from the notebooks by `python -m tests.notebooks.glossary`.

| term | first definition | where |
|---|---|---|
"""
TERMS = """\
log, topic, partition, broker, producer, consumer, offset, key, value, timestamp, headers, group, delivery report,
position, tombstone, segment, cleaner, dead letter, leader, replica, follower, in sync, ISR, metadata, controller,
leader epoch, committed, high watermark, page cache, preferred, total order, order per key, partitioner, hot, consumer
group, lag, commit, session, zombie, rebalance, coordinator, eager, cooperative, KIP-848, static, generation, schema,
registry, Avro, subject, wire format, alias, union, logical type, backward, forward, full, compatibility level, at
least once, at most once, exactly once, producer id, sequence number, isolation level, last stable offset, retriable,
abortable, fatal, in flight, rung, floor, top, ledger, lease, receipt, owner epoch, fencing, epoch, poison item, jitter, redrive,
outbox, cursor, checkpoint, watermark"""
_LEANS = re.compile(r"(?:It|That|This|They|Both|We) ")
_EMPHASIS = re.compile(r"(?<!\*)(\*{1,2})([^*\n]+?)[.:,]?\1(?!\*)")


def page() -> str:
    """The page."""
    terms = {_bare(term): term for term in TERMS.replace("\n", " ").split(", ")}
    rows: dict[str, str] = {}
    for path in notebooks():
        section = ""
        for cell in read(path).prose:
            for part in _PART.split(_CODE.sub("\n\n", cell.source)):
                if heading := re.match(r"#+ +(.+)", part.strip()):
                    section = "" if part.lstrip().startswith("# ") else heading[1].strip()
                    continue
                for sentence in _sentences(part):
                    for found in _EMPHASIS.finditer(sentence):
                        term = terms.get(_bare(found[2]))
                        if term and term not in rows and section:
                            rows[term] = _row(term, sentence, path, section)
    return HEAD + "".join(rows[term] for term in sorted(rows, key=str.lower))


def _sentences(part: str) -> list[str]:
    """The sentences of a part, each with its end and without the mark of a list."""
    words = re.sub(r"^(?:[-*+>]|\d+\.)\s+", "", " ".join(part.split()))
    ends = [match.end() for match in _END.finditer(words + " ")]
    found = [words[start:end].strip() for start, end in zip([0, *ends], [*ends, len(words)], strict=True)]
    # 'It is called a topic' needs the sentence before
    return [
        f"{before} {each}".strip() if _LEANS.match(each) else each
        for before, each in zip(["", *found], found, strict=False)
    ]


def _row(term: str, sentence: str, path: Path, section: str) -> str:
    # JupyterLab and GitHub name a section by its title, with a hyphen for each space
    anchor = quote(section.replace(" ", "-"))
    title = section.replace("|", "\\|")
    shown = re.sub(r"\]\((?:\.\./)?([^)]*)\)", r"]", sentence).replace("|", "\\|")
    return f"| [{term}](../notebooks/{path.name}#{anchor}) | {shown} | {path.name[:2]}, {title} |\n"


def _bare(term: str) -> str:
    """A term as it is compared: in small letters, without an article and without the s of a plural."""
    word = re.sub(r"^(?:the|an?) ", "", term.lower().strip("*_ "))
    return re.sub(r"(?<!d)s$", "", word)  # 'backwards' is no plural


def write() -> None:
    """Write the page, if it changed."""
    if (text := page()) != (PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""):
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
