# train_tensorflow.py: python train_tensorflow.py
import tensorflow as tf

import headrace as hr
import headrace.tensorflow

weights = tf.Variable(tf.zeros((3 * 64 * 64, 3)))
loader = hr.Loader("images", batch_size=16, transform=hr.image.train(64), output="numpy")
batches = headrace.tensorflow.dataset(loader)
for epoch in range(2):
    for images, labels in batches:
        with tf.GradientTape() as tape:
            scores = tf.reshape(images, (len(images), -1)) @ weights
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
            loss = tf.reduce_mean(losses)
        weights.assign_sub(1e-4 * tape.gradient(loss, weights))
        print(epoch, float(loss))
loader.close()
