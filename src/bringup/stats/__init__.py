"""Figures from records: quantiles, latencies, the comparison of two runs. Pure; draws come from a seed."""
