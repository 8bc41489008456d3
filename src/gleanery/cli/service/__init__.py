"""Commands of the service. They need the extra ``server``."""
