"""Session state: cookies and local-storage entries with encrypted values.

- ``records`` stores, reads and deletes records of any kind. A ``RecordKind`` describes a kind.
- ``versions`` has the ETags of lists, and ``summaries`` the counts per host.
- ``states`` reads what a format needs, ``documents`` stores what was read from one, and ``imports``
  does so for a request.
- ``leases`` gives a session to one holder at a time.
"""
