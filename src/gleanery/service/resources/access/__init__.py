"""Access: organizations, their tokens, the console's login, and the authentication of requests."""
