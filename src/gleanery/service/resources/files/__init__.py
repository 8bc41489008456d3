"""Files: their records, uploads, references from outputs, and the deletion of unused files.

A file has bytes and a source URL. Its bytes are a blob in the blob store; files of one
organization with the same bytes share one blob. A blob without a file is unreferenced: its upload
is not finished, or it is to be deleted. The blob is recorded as unreferenced before its first byte
is written. The transaction that creates the file removes that record. So an interruption at any
point leaves no unknown blob in the store.
"""
