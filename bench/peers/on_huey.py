"""Jobs on Huey and Redis: eight threads, a blocking pop."""

from __future__ import annotations

import logging

from huey import RedisHuey
from peer import NAME, SERVER, THREADS, job, main

logging.getLogger("huey").setLevel(logging.ERROR)
huey = RedisHuey(NAME, url=SERVER, results=False)
task = huey.task(name="job")(job)
main(task, lambda: huey.create_consumer(workers=THREADS, periodic=False, check_worker_health=False).run())
