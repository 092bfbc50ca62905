"""The same verbs on Kafka's own share groups (KIP-932): `kq.ShareQueue(cluster, "football", group="…")`.

In:  a topic, a group, calls from any thread. Out: items, each locked for this process by the broker. `group.py` sets the group,
`member.py` is one consumer and its thread, `queue.py` has the verbs.
Rights on a cluster with ACLs: READ on the topic and on the group to claim, WRITE on the topic to put, DESCRIBE_CONFIGS on the group
to know its terms. ALTER_CONFIGS on the group is needed once, to set it up: by the first ShareQueue or by `kq kafka configs`.

What share groups really do, measured with confluent-kafka 2.16.0 (`ShareConsumer`, Preview) on Kafka 4.3.1;
a test or notebook 11 pins each:
- A poll gives whole batches as their producer made them: with max.poll.records=1 a batch of 500 comes as 500, and all are locked.
  So `put_many` puts each record in a batch of its own. All records of a poll share one lock: one end, one delivery each.
  Brokers since 4.2 split a batch for a client with share.acquire.mode=record_limit (KIP-1206); librdkafka 2.16 cannot ask for it.
- A consumer cannot poll while a record of its last poll is unanswered. Answers one by one, committed in between, are fine. A second
  thread in a call raises. So each outstanding batch has a consumer and a thread of its own, and answers go to that thread.
- **An empty poll leaves a fetch open at the broker, and that fetch takes the next record.** It locks the record for a member that
  does not poll. The record comes out of a later poll, even when its lock is over. So a member that has polled goes on polling, or it
  closes, which gives the record back.
- A new member has its first record after 5 s: the second heartbeat brings the partitions. With share.heartbeat.interval.ms=500
  and share.assignment.interval.ms=0 it is 0.05 s. More members than partitions: all have work.
- The lock ends on time, and the item comes at once with the next delivery count. An answer after that is INVALID_RECORD_STATE,
  in the commit, not in `acknowledge`; for the whole partition, valid ones of the same commit included. If another member has
  already done the item, the broker accepts a late answer; so a ShareQueue refuses it by its own clock too.
- A killed member's records are free as soon as its connection breaks (a stopped one's when the lock ends), counted as delivered.
- The last delivery of share.delivery.count.limit (5) is not announced. A record that is then released, or whose lock ends, is
  archived: it is gone. Kafka 4.3 has no dead letters. A record in a polled batch counts as delivered even if it is never handled.
  But its last delivery is alone, whatever batch it came in (the broker halves the batch before that).
- `share-groups --describe --offsets` shows a lag that counts what is not done, locked records included; no client can ask for it.
- close() of a client waits for the broker up to socket.timeout.ms (60 s by default).
"""

from kqlib.share.queue import ShareQueue

__all__ = ["ShareQueue"]
