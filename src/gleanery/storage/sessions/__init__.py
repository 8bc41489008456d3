"""Session state: cookies and local-storage entries with encrypted values.

``records`` stores, reads and deletes records of any kind. A kind is described by a ``RecordKind``.
"""
