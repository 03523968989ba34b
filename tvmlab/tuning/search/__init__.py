"""Search one space: MetaSchedule's components, driven by this package's loop."""
