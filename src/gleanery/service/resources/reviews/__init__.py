"""Reviews of jobs: adding and reading them, and samples of outputs to review."""
