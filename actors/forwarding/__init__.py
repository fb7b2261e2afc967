"""Forwarding: what waits beside partitions, and how each message reaches its topic once.

Three actors forward, each under a supervisor of its own: the dead-letter router, the forwarder of what acks have
published, and the delayed forwarder. They do the same, and differ in what waits, and for what:

1. a *source* (dead letters of a group in a partition, an outbox, a waiting partition) lists what waits, with numbers
   that rise, from a journal that is synced;
2. the records are read, as many as fit into one batch (`waiting_records`);
3. they are published at `acks="all"` by a producer that is named after the source and its numbering, with the numbers
   as sequences (`callboard.actors.source_ids`);
4. the source forgets them.

Whatever crashes in between, the next incarnation begins at 1: the target knows which numbers it has. What waits for one
target is a *line*. While the target takes nothing, its line is held, that is reported, and tried again after pauses
(`held`); other lines go on. When a source has ended, partitions forget it (`ended_sources`).
"""
