"""The file of records: written whole, read with care, replayed in words."""
