"""Fast Horovod: lanes below unmodified Horovod, their launcher, tuning before training."""
