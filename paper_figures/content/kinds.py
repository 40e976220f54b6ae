"""Titles of the kinds of task of the length studies."""

TITLES = {
    "copy": "copy a digit",
    "goal walk": "walk to a goal",
    "think until sure": "think until sure",
    "bigram text": "letters of a text",
}
