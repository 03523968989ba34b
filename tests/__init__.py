"""The tests, in a folder for each room of the package."""
