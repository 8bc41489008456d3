"""Running the service: start, worker processes, certificates, signals, orderly stop."""
