"""``carrel backup`` and ``carrel restore``: what makes an installation itself, in one file.

The file is a compressed tar archive, encrypted where a passphrase is given. Databases are copied in
one consistent state while they are in use.
"""
