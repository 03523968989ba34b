"""The parts of `tvmlab.qnn.arithmetic`: what the quantized operators compute, in NumPy."""
