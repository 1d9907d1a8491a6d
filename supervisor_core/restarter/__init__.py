"""`tb-supervisor run`: starts a training again that has died or hangs, by rules that end a loop without progress."""
