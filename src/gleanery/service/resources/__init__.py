"""The resources of the API: one package each, with its operations, handlers, models and SQL."""
