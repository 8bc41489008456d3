"""Webhooks: addresses that get events, and the delivery of events to them."""
