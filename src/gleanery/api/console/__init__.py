"""The service side of the console: its page, its login, and data as its screens need it."""
