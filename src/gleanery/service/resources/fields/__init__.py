"""Field statistics: which fields the outputs of a job have, how often, and with which values.

``recording`` explains how they work.
"""
