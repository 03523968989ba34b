"""Kernels compiled and measured: by processes of this machine, or by servers."""
