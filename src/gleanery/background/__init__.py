"""Work that runs beside the requests of a service."""
