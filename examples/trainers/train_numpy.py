# train_numpy.py: python train_numpy.py
import numpy as np

import headrace as hr

weights = np.zeros((3 * 64 * 64, 3), np.float32)
loader = hr.Loader("images", batch_size=16, transform=hr.image.train(64), output="numpy")
for epoch in range(2):
    for images, labels in loader:
        pixels = images.reshape(len(images), -1)
        scores = pixels @ weights
        likely = np.exp(scores - scores.max(axis=1, keepdims=True))
        likely /= likely.sum(axis=1, keepdims=True)
        print(epoch, -np.log(likely[np.arange(len(labels)), labels]).mean())
        likely[np.arange(len(labels)), labels] -= 1
        weights -= 1e-4 * pixels.T @ likely / len(labels)
loader.close()
