"""Wire types: the bodies and queries that clients send, and the responses that they receive."""
