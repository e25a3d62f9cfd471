"""Training on AWS spot machines that ends by itself. Begin with ../README.md; volume.py is the heart."""
