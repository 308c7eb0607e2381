"""A rank loss, class batches and exact evaluation in the trainer of sentence-transformers: half a minute on a CPU."""

import tempfile

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from rankgrad import losses
from rankgrad.adapters.sentence_transformers import ClassBatchSampler, RetrievalEvaluator, SentenceTransformersLoss

topics = "card transfer balance pin refund cash limit fee loan rate".split()
ways = "where is my {} please|tell me of the {} you have|i do not see a {} in here|how long does the {} take".split("|")
texts, labels = [way.format(topic) for topic in topics for way in ways], [i for i in range(len(topics)) for _ in ways]
words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
words.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["[UNK]"]))
model = SentenceTransformer(modules=[StaticEmbedding(words, embedding_dim=32)])  # or SentenceTransformer("its name")
evaluator = RetrievalEvaluator(texts, labels, name="train")
print("before", evaluator(model)["train_mAP@R"])
args = SentenceTransformerTrainingArguments(
    tempfile.mkdtemp(), batch_sampler=ClassBatchSampler, per_device_train_batch_size=16, num_train_epochs=30,
    learning_rate=0.05, report_to="none", disable_tqdm=True)  # fmt: skip
data = Dataset.from_dict({"text": texts, "label": labels})
loss = SentenceTransformersLoss(model, losses.SmoothAPLoss(tau=0.1))
SentenceTransformerTrainer(model, args, train_dataset=data, loss=loss).train()
print("after", evaluator(model)["train_mAP@R"], evaluator.report, sep="\n")
