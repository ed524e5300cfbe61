"""Models of other toolkits as checkpoints of Lingon. It imports lingon, training and export."""
