"""The exporter: metrics of every run below some logdirs, from their events files alone."""
