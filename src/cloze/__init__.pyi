"""The public names of cloze: read by type checkers, by editors and by `__init__.py`."""

from cloze import callbacks as callbacks
from cloze.checkpoint.load import load as load
from cloze.checkpoint.model import Model as Model
from cloze.checkpoint.source import builtin as builtin
from cloze.data.midi import read_midi as read_midi
from cloze.data.midi import write_midi as write_midi
from cloze.errors import ClozeError as ClozeError
from cloze.make.demo import demo as demo
from cloze.make.distill.job import distill as distill
from cloze.make.finetune.dispatch import finetune as finetune
from cloze.make.glue import glue as glue
from cloze.make.pretrain.dispatch import pretrain as pretrain
from cloze.make.recipe.complete import recipe as recipe
from cloze.make.resume import resume as resume
from cloze.make.vocabulary import vocabulary as vocabulary
from cloze.report.hub import push_to_hub as push_to_hub
from cloze.report.page import build_report as build_report
from cloze.tasks.answer import answer as answer
from cloze.tasks.choose import choose as choose
from cloze.tasks.classify import classify as classify
from cloze.tasks.compare import compare as compare
from cloze.tasks.embed import embed as embed
from cloze.tasks.evaluate import evaluate as evaluate
from cloze.tasks.export import export as export
from cloze.tasks.fill import fill as fill
from cloze.tasks.generate import generate as generate
from cloze.tasks.info import info as info
from cloze.tasks.music import plot_music as plot_music
from cloze.tasks.score import score as score
from cloze.tasks.score import score_pairs as score_pairs
from cloze.tasks.similar import analogy as analogy
from cloze.tasks.similar import combine as combine
from cloze.tasks.similar import cosine as cosine
from cloze.tasks.similar import odd_one_out as odd_one_out
from cloze.tasks.similar import plot_vectors as plot_vectors
from cloze.tasks.similar import plot_words as plot_words
from cloze.tasks.similar import similar as similar
from cloze.tasks.suggest import suggest as suggest
from cloze.tasks.summarize import summarize as summarize
from cloze.tasks.tag import tag as tag
from cloze.tasks.tokenize import tokenize as tokenize
from cloze.tasks.translate import translate as translate
from cloze.text.tokenizer import Tokenizer as Tokenizer
from cloze.train.callbacks import Callback as Callback

__version__: str
