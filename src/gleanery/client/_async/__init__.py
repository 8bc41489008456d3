"""The source of both clients: ``make client`` generates ``_sync`` from this package."""
