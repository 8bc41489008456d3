"""The HTTP/1.1 server: connections, requests, limits and timeouts."""
