"""Quantized operators as a Relax dialect."""
