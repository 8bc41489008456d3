"""The resources: one package each, with operations, handlers, types, rules and SQL."""
