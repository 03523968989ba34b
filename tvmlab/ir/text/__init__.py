"""Reader and printer of Relay text."""
