"""The handlers of sessions: cookies, local storage, and the exchange with browsers and tools.

The records of one host and profile are a session.
"""
