"""Fault injection: causes the failures that the service must survive, and checks the outcome."""
