"""Texts of random words, and the tokenizer that knows them: nothing is downloaded.

    tokenizer()                  one token a word
    words(draw, 64, 512)         "17 4093 ...", 64 to 512 of them
"""
import random

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = 8000


def tokenizer(**more: str) -> PreTrainedTokenizerFast:
    known = ["<pad>", "</s>", "<unk>", *map(str, range(WORDS - 3))]
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(known)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>", **more)


def words(draw: random.Random, least: int, most: int) -> str:
    return " ".join(str(draw.randrange(WORDS - 3)) for _ in range(draw.randint(least, most)))
