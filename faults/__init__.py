"""Does the damage that the service promises to withstand, and says what came of it."""
