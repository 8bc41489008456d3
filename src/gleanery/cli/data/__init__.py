"""Commands on data. They call a service over HTTP, with ``gleanery.client`` only."""
