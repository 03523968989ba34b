"""What all rooms use: files, targets, tools, downloads, and text for messages."""
