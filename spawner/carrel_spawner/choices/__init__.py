"""What a workspace may be chosen to be: the start form, the check of choices, assets."""
