"""A call cannot reach another turn's workspace: each way is tried, from inside of a real call.

The other turn is of the same user and uid: only confinement keeps them apart. Where root runs the tests all is
tried twice, once with turns that belong to root.
"""
