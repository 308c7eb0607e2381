"""A rank loss, class batches and exact metrics in the Trainer of transformers: a small BERT, a minute on a CPU."""

import tempfile

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, DataCollatorWithPadding, PreTrainedTokenizerFast, TrainingArguments

from rankgrad import losses
from rankgrad.adapters.transformers import ClassBatchTrainer, EmbeddingModel, RetrievalMetrics, TransformersLoss

topics = "card transfer balance pin refund cash limit fee loan rate".split()
ways = "where is my {} please|tell me of the {} you have|i do not see a {} in here|how long does the {} take".split("|")
texts, labels = [way.format(topic) for topic in topics for way in ways], [i for i in range(len(topics)) for _ in ways]
plain = Tokenizer(models.WordLevel(unk_token="[UNK]"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
plain.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]"]))
words = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="[PAD]", unk_token="[UNK]")  # or AutoTokenizer
config = BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=1, num_attention_heads=2)
body = BertModel(config, add_pooling_layer=False)  # or AutoModel of the same name
data = Dataset.from_dict({**words(texts), "label": labels})
args = TrainingArguments(tempfile.mkdtemp(), per_device_train_batch_size=16, num_train_epochs=30, learning_rate=0.003,
                         report_to="none", disable_tqdm=True)  # fmt: skip
trainer = ClassBatchTrainer(
    EmbeddingModel(body), args, DataCollatorWithPadding(words), data, data, samples_per_class=4,
    compute_loss_func=TransformersLoss(losses.SmoothAPLoss(tau=0.1)), compute_metrics=RetrievalMetrics())  # fmt: skip
for step in (trainer.evaluate, trainer.train, trainer.evaluate):
    print(step())
