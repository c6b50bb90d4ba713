# train_jax.py: python train_jax.py
import jax
import jax.numpy as jnp

import headrace as hr


@jax.jit
def step(weights, images, labels):
    def loss(weights):
        scores = images.reshape(len(images), -1) @ weights
        return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1).mean()

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - 1e-4 * gradient, value


weights = jnp.zeros((3 * 64 * 64, 3))
loader = hr.Loader("images", batch_size=16, transform=hr.image.train(64), output="jax")
for epoch in range(2):
    for images, labels in loader:
        weights, loss = step(weights, images, labels)
        print(epoch, loss)
loader.close()
