"""BM25 reads every script, and there is no verdict against it where it finds nothing."""

from __future__ import annotations

import json

import pytest
from small_searches import beir, settings, write_lines

from rankgrad_workbench.settings import compose
from rankgrad_workbench.tasks.search import task
from rankgrad_workbench.tasks.search.bm25 import bm25, words
from rankgrad_workbench.tasks.search.evaluation import SearchReport

pytest.importorskip("bm25s")

# A query, the document that answers it, and one that does not, in scripts with and without spaces.
SCRIPTS = {
    "Chinese": ("手机屏幕碎了", "更换手机屏幕的价格", "如何申请信用卡"),
    "Japanese": ("カードを紛失", "クレジットカードの紛失について", "送料を教えて"),
    "Thai": ("บัตรหาย", "ถ้าบัตรของคุณหาย", "ค่าจัดส่งเท่าไร"),
    "Lao": ("ບັດເສຍ", "ບັດຂອງທ່ານເສຍ", "ຄ່າສົ່ງ"),
    "Khmer": ("បាត់កាត", "ប្រសិនបើបាត់កាត", "ថ្លៃដឹក"),
    "Burmese": ("ကတ်ပျောက်", "သင့်ကတ်ပျောက်လျှင်", "ပို့ခ"),
    "Korean": ("카드 분실", "카드 분실 신고", "배송 요금"),
    "Hindi": ("कार्ड खो गया", "मेरा कार्ड खो गया है", "डिलीवरी शुल्क"),
    "decomposed": ("cafe\u0301 ferme\u0301", "le café fermé", "un billet"),
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_document_with_the_words_of_the_query_is_first_and_the_other_is_not_found(script):
    query, right, wrong = SCRIPTS[script]
    assert bm25([query], [wrong, right], depth=2).document.tolist() == [[1, -1]]


def test_korean_keeps_words_and_texts_of_two_scripts_are_divided_where_the_script_changes():
    assert words("카드 분실") == ["카드", "분실"]
    assert words("iPhone手机壳 x 12") == ["iphone", "手机", "机壳", "12"]


def test_a_query_or_a_corpus_without_a_word_finds_nothing():
    assert bm25(["", "!", "fox"], ["a fox", ""], depth=2).document.tolist() == [[-1, -1], [-1, -1], [0, -1]]
    assert bm25(["fox"], ["", "!"], depth=1).document.tolist() == [[-1]]


def test_there_is_no_verdict_against_bm25_where_it_finds_nothing_for_many_queries(tmp_path):
    root = beir(tmp_path / "data")
    rows = [json.loads(line) for line in (root / "queries.jsonl").read_text().splitlines()]
    write_lines(root / "queries.jsonl", [{**row, "text": row["text"].upper()[::-1]} for row in rows])
    run = task.train(compose(settings(root, f"out={tmp_path / 'run'}")), quiet=True)
    report, page = SearchReport.from_json(run.after), run.page.read_text("utf-8")
    [said] = [sentence for sentence in report.verdict if sentence.startswith("No verdict")]
    assert said == "No verdict against BM25: it finds nothing for 18 of 18 questions, so it is no baseline here."
    assert said in page and said in task.summary(run) and said in run.read_facts()["verdict"]
