"""Predict step times: workload, cluster, contention, collectives, calibration."""
