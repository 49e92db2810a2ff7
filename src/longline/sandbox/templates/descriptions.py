"""Generated descriptions: Markdown with headings, lists, images and the odd video."""

from __future__ import annotations

from random import Random

from longline.sandbox.templates import words
from longline.sandbox.templates.parameters import sentences

_VIDEO_SHARE = 0.10
_IMAGE_SHARE = 0.19
_FILE_SHARE = 0.7  # of the images; the others are plain links
_SHORT_SHARE = 0.2
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_VIDEO_FORMS = (
    "[Watch the video](https://www.youtube.com/watch?v={video})",
    "Video: https://youtu.be/{video}",
    "[![Preview](https://img.youtube.com/vi/{video}/sddefault.jpg)](https://www.youtube.com/watch?v={video})",
    '<iframe src="https://www.youtube.com/embed/{video}"></iframe>',
)


def make_video_id(rng: Random) -> str:
    """Return the eleven characters that name a video."""
    return "".join(rng.choices(_ALPHABET, k=11))


def make_description(
    rng: Random, site: str, image: int, video: str
) -> tuple[str, list[dict[str, object]]]:
    """Return a description and the `image` list that its `fileId:` references point to."""
    if rng.random() < _SHORT_SHARE:
        blocks = [sentences(rng, 1)]
    else:
        blocks = [sentences(rng, 2), *(_section(rng) for _ in range(rng.randrange(3, 9)))]
    images: list[dict[str, object]] = []
    if rng.random() < _VIDEO_SHARE:
        blocks.append(rng.choice(_VIDEO_FORMS).format(video=video))
    if rng.random() < _IMAGE_SHARE:
        address = f"{site}/images/{image}.png"
        is_file = rng.random() < _FILE_SHARE
        blocks.insert(1, f"![workflow-screenshot]({f'fileId:{image}' if is_file else address})")
        images = [{"id": image, "url": address}] if is_file else []
    return "\n\n".join(blocks), images


def _section(rng: Random) -> str:
    heading = f"## {rng.choice(words.HEADINGS)}"
    if rng.random() < 0.5:  # noqa: PLR2004  # a toss of a coin
        return f"{heading}\n{sentences(rng, rng.randrange(3, 9))}"
    steps = rng.sample(words.STEPS, rng.randrange(2, 5))
    return heading + "\n" + "\n".join(f"{n}. {step}" for n, step in enumerate(steps, 1))
