"""Pictures of the pages as SVG: the GPU map, quota lines, time lines, states."""
