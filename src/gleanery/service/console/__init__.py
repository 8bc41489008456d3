"""The console: a program for the browser, and its files as the service sends them."""
