"""Session state: cookies and local-storage entries, whose values are encrypted.

``records`` stores, reads and deletes records of any kind. A kind is described by a ``RecordKind``.
"""
