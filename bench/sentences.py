"""The texts to encode and translate: lines of a corpus, or built-in sentences."""

from pathlib import Path

BUILT_IN = "built-in sentences"

_ENGLISH = (
    (
        "When the train finally reached the small town in the valley,",
        "After three weeks of heavy rain,",
        "Although nobody had expected much from the first meeting,",
        "Because the bridge was closed for repairs,",
        "Early on Monday morning,",
        "According to the report that the ministry published last year,",
        "While the engineers were still checking the second pump,",
        "In the old part of the city, between the market and the river,",
        "If prices keep rising at this rate,",
        "Before the doctors had seen the results of the blood test,",
        "Despite the objections of several members,",
        "Once the software had been installed on all twelve machines,",
        "Far away from the coast,",
        "During the summer holidays,",
        "As soon as the last guest had left,",
        "With only two minutes left to play,",
    ),
    (
        "they saw the children waiting.",
        "most of the families decided to stay where they were.",
        "the committee agreed to spend 40 million euros on new schools, roads and hospitals over the next five years.",
        "she wrote a short letter to her brother.",
        "it became clear that the measurements of the previous night could not be trusted.",
        "a man with a grey hat asked me whether the museum was open.",
        "the price of bread doubled.",
        "scientists from four universities began to collect samples of water, soil and air along the whole border.",
        "we found a quiet place to eat, and nobody mentioned the accident again.",
        "the company announced that it would hire 250 people.",
        "everything changed.",
        "the players returned to the field, the music stopped, and the crowd of thirty thousand fell silent.",
        "farmers began to plant olives instead of wheat.",
        "the government promised a quick answer.",
        "his grandmother told him stories about wolves, kings and a ship that sailed over the mountains at night.",
        "the lights went out in every house on the street.",
    ),
)
_CHINESE = (
    (
        "当火车终于到达山谷里的小镇时，",
        "连续三个星期的大雨过后，",
        "虽然没有人对第一次会议抱有很大的期望，",
        "根据教育部去年发表的报告，",
        "星期一早上，",
        "在这座城市靠近河边的老城区，",
        "如果价格继续以这样的速度上涨，",
        "在比赛只剩下最后两分钟的时候，",
    ),
    (
        "孩子们正在车站等着他们。",
        "大多数家庭决定留在原来的地方。",
        "委员会同意在今后五年内拨款四千万欧元，用于新建学校、公路和医院。",
        "她给哥哥写了一封短信。",
        "人们清楚地看到，前一天晚上的测量结果并不可靠。",
        "一位戴着灰色帽子的男人问我博物馆是否开放。",
        "来自四所大学的科学家开始沿着整个边境收集水、土壤和空气的样本。",
        "公司宣布将再招聘二百五十名员工。",
    ),
)
_CORPORA = {"en": ("flores-dev.en", _ENGLISH, " "), "zh": ("flores-dev.zh", _CHINESE, "")}


def sentences(language: str, count: int, data: Path | None = None) -> list[str]:
    """``count`` sentences, "en" or "zh": of ``data``/flores-dev/flores-dev.{en,zh} if given, else built in.

    Built-in sentences combine every beginning with every end, in a mixed order, repeatedly.
    """
    file, (starts, ends), space = _CORPORA[language]
    if data is not None:
        return (data / "flores-dev" / file).read_text(encoding="utf-8").splitlines()[:count]
    pairs = [(starts[i], ends[(i + j) % len(ends)]) for j in range(len(ends)) for i in range(len(starts))]
    return [pairs[i % len(pairs)][0] + space + pairs[i % len(pairs)][1] for i in range(count)]
