"""Tables that list samples: manifests with a row a sample, and the annotations of COCO."""
