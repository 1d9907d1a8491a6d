"""What each answer says: functions from a `View` to plain values or columns. No HTTP, no files, no threads."""
