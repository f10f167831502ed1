"""What the loop does about inputs, objects and devices that are not as they should be."""
