"""Tests of several database servers: replicas, poolers and distributed tables."""
