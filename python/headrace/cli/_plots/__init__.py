"""Charts that commands draw; needs matplotlib."""
