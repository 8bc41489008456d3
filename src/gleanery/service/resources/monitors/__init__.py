"""Monitors: rules about the runs of jobs, and alerts when a run breaks one."""
