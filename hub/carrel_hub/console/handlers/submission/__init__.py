"""The pages that submit work: the form, and the upload of a folder for it."""
