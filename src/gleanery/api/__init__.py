"""The API: the operation table and the pipeline that answers requests."""
