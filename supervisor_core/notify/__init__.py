"""Messages about runs: what has changed since the last look, and how it reaches a chat, a mailbox or a command."""
