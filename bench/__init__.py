"""Measures Gleanery beside the limits and the peers, on this machine, in one run."""
