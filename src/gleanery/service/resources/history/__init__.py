"""History: the earlier versions of outputs, how they are stored, read, compared and deleted."""
