"""How alike sentences are: their vectors from MiniLM, compared; with the speed of encoding a thousand."""

import time

from fastattn import Encoder

SENTENCES = [
    "The children cannot go to school because of the rain.",
    "Heavy rainfall keeps the pupils at home.",
    "The fishermen leave before sunrise.",
    "In the evening everyone sang in the square.",
]

encoder = Encoder("minilm")
vectors = encoder.encode(SENTENCES)
for sentence, row in zip(SENTENCES, encoder.similarity(vectors, vectors)):
    print(" ".join(f"{value:5.2f}" for value in row), "", sentence)

many = [f"{sentence} Line {i}." for i in range(250) for sentence in SENTENCES]
start = time.perf_counter()
encoder.encode(many)
print(f"{len(many) / (time.perf_counter() - start):,.0f} sentences/s, vectors of {vectors.shape[1]} float32")
