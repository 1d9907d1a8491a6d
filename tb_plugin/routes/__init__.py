"""HTTP: each file reads one route's arguments, and has its answer made by `tb_plugin.data`."""
