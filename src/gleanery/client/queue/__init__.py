"""The durable queue: items that a program has made, on their way to the service.

Theory of operation
-------------------

An item passes up to three places. The items keep the order in which they were added.

1. **Memory** (``batches``). A producer adds items to a ``BatchQueue``. A batch is closed when it is
   full or old. The number of batches is limited, so a slow service holds back the producer.
2. **The service** (``sender``). One consumer takes the first batch, stores it, and removes it only
   then. The thread of a ``Sender`` has the back-off of the client, but its wait can be stopped.
3. **The disk** (``spool``). While the service does not respond, batches go to the ``Spool``. This
   run or the next one sends them before all later items. They survive a kill of the process.

Items that the service rejects leave the queue: ``sender`` finds all of them, and keeps them in a
file.

Each program uses the places that it needs:

- The pipeline of Scrapy uses all of them. Its feed storage writes a whole feed to the spool first.
- ``gleanery push`` reads a pipe into a ``BatchQueue``. It has no spool: the input is the copy that
  lasts, and ``--skip`` continues in it.
- Crawlee adds the calls of ``push_data`` to a ``BatchQueue``. It has no spool: a call returns when
  its items are stored, and the request queue of Crawlee is the durable copy.

See ``docs/explanation/scrapy.md``.
"""
