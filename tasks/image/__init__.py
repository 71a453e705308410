"""Image classification: task, data modules, augmentation and codec."""
