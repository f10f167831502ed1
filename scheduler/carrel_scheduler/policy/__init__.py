"""Rules that admins set: what may be asked for, how long a workspace may stay."""
