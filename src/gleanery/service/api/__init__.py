"""HTTP API: the operation table and the request pipeline."""
