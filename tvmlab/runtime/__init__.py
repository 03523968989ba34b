"""The result of `compile`, and everything that runs, saves, sends, measures or profiles it."""
