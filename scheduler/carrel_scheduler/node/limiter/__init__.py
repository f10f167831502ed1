"""The limiter: keeps programs with a fraction of a GPU within their part of its memory."""
