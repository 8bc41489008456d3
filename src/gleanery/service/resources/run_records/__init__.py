"""The rows of runs: what a batch adds to the run of its job, and which outputs a run did not send.

The routes of runs are in the package ``runs``. It stores and removes outputs, and the package
``outputs`` counts them here.
"""
