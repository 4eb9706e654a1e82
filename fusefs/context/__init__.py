"""The contexts of orgs: kept by content, published in generations, served read-only by construction.

`nodes` is what the mount shows, and has no method that changes anything. It, and all that it uses, does not know the
write path; what publishes (`library`) is not known to it.
"""
