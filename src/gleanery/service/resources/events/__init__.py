"""Events that webhooks get: their names, and storing them in the transaction of their cause."""
