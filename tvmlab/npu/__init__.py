"""An example accelerator that computes."""
