"""Session state: cookies and local-storage entries with encrypted values.

- ``kinds`` describes a kind of record. ``cookies`` and ``local_storage`` are the two kinds.
- ``records`` reads lists of any kind, with their ETags, and has the lock. ``writing`` stores and
  deletes records.
- ``states`` reads what a format needs. ``documents`` stores what was read from one.
- ``summaries`` has the counts per host.
- ``leases`` gives a session to one holder at a time.
"""
