"""The TensorBoard tab: what happened to each run, when, and what it cost.

`tb_plugin.loader` is what TensorBoard imports at its start, so it imports next to nothing. The rest is loaded with the
plugin, along the data path: `logdirs` (which directories), `index` (one thread reads them, at intervals), `run_data`
(all runs at one moment, and the content of their pages), `lanes`, `scalars` (that of the other answers), `backend` (the
routes), `http` (requests and answers). http_api.md is the contract. `report` puts the answers of one run into one file.
"""

DISTRIBUTION = "tensorboard-plugin-supervisor"
"""Whose package this is: the name is one that others may use, too (`supervisor_core.base.tensorboard_tab`)."""
