"""Compare models and runtimes, and list a model's operators."""
