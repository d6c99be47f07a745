"""Serve a registered model: a search page and its interface, as a Ray Serve application.

python pipelines/serve.py --model flickr8k
python pipelines/serve.py --model flickr8k --follow                       # takes up new champions while it runs
python pipelines/serve.py --model flickr8k --host 0.0.0.0 --replicas 4    # with VSE_SERVE_TOKEN set

It listens to this machine only, unless a token is set that clients have to carry. Interface:

    GET  /               the page
    POST /search         {"text": "...", "k": 12, "target": "images" or "captions"}, or the bytes of an image with its
                         Content-Type (image/jpeg, png, webp, gif) and ?k=12&target=captions
    GET  /images/ID      an image of the gallery
    POST /relevance      {"text": "...", "image_id": "..."}: where in the image the words are (UniVSE)
    GET  /model          the model, and the limits of queries
    GET  /health         health check

A refused request is answered by {"error": "..."} with a status of 4xx, or 503 if it may be tried again.
"""

import _repository  # noqa: F401

from pipelines.runtime.cli import run_command
from pipelines.serving.serve import main

if __name__ == "__main__":
    run_command(main)
