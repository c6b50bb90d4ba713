"""COCO: images and their annotations, in one file of JSON."""
