"""The fault bench: faults are injected into real trainings, and what is left is compared with what must be left.

    python -m benchmarks.faults [--only FAMILY ...] [--short | --quick] [--seed N] [--jobs N] [--write]

A family of faults is a module (`kills`, `damages`, `zombies` ...) with one `Fault` for each row of the table in
docs/faults.md. `training` is the program that they harm, `truth` reads what is on disk without this project's readers.
"""
