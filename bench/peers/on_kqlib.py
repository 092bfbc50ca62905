"""Jobs on kqlib: a record in the log for each, eight threads of `work`, a session of 6 s."""

from __future__ import annotations

import json

from peer import NAME, SERVER, THREADS, job, main

import kqlib as kq
from kqlib.kafka import Kafka

with kq.Site(Kafka(SERVER), NAME, session=6) as site:
    queue = site.queue(NAME, order="key" if NAME.endswith("by-key") else "any")
    main(
        lambda *words: queue.put(json.dumps(words).encode(), b"%d" % (words[0] % 97)),
        lambda: queue.work(lambda item: job(*json.loads(item.data)), threads=THREADS),
    )
