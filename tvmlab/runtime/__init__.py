"""What `compile` returns, and all that runs, saves, sends, measures or profiles it."""
