"""The first minutes on a real GPU: parts that run one after the other, and what they found (docs/gpu-kit.md)."""
