"""``tb-supervisor run``: keeps one program running, on one node or several.

`restarter.Restarter` is the entry on node 0, `nodes.Follower` on the others; both start the program by
`running.RunningLaunch`, below a `keeper`. `policy.decide` says whether it is started again: plain data in, a decision
out. `watching` sends the messages, in a process of its own. Nothing here imports the command or a framework.
"""
