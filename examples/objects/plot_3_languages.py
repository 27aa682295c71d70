"""
A map of languages
==================

Languages are compared by their words for one to ten: two languages are as similar as their words are in spelling. That
is a function of two objects, and any such function is a kernel. ``KernelPCA`` draws the map.
"""

import matplotlib.pyplot as plt

import krein
from krein.plotting import MapDisplay

NUMBERS = {
    "English": "one two three four five six seven eight nine ten",
    "German": "eins zwei drei vier fünf sechs sieben acht neun zehn",
    "Dutch": "een twee drie vier vijf zes zeven acht negen tien",
    "Danish": "en to tre fire fem seks syv otte ni ti",
    "Swedish": "en två tre fyra fem sex sju åtta nio tio",
    "Norwegian": "en to tre fire fem seks sju åtte ni ti",
    "Icelandic": "einn tveir þrír fjórir fimm sex sjö átta níu tíu",
    "Latin": "unus duo tres quattuor quinque sex septem octo novem decem",
    "Italian": "uno due tre quattro cinque sei sette otto nove dieci",
    "Spanish": "uno dos tres cuatro cinco seis siete ocho nueve diez",
    "Portuguese": "um dois três quatro cinco seis sete oito nove dez",
    "Catalan": "un dos tres quatre cinc sis set vuit nou deu",
    "French": "un deux trois quatre cinq six sept huit neuf dix",
    "Romanian": "unu doi trei patru cinci șase șapte opt nouă zece",
    "Polish": "jeden dwa trzy cztery pięć sześć siedem osiem dziewięć dziesięć",
    "Czech": "jeden dva tři čtyři pět šest sedm osm devět deset",
    "Slovak": "jeden dva tri štyri päť šesť sedem osem deväť desať",
    "Croatian": "jedan dva tri četiri pet šest sedam osam devet deset",
    "Slovene": "ena dva tri štiri pet šest sedem osem devet deset",
    "Finnish": "yksi kaksi kolme neljä viisi kuusi seitsemän kahdeksan yhdeksän kymmenen",
    "Estonian": "üks kaks kolm neli viis kuus seitse kaheksa üheksa kümme",
    "Hungarian": "egy kettő három négy öt hat hét nyolc kilenc tíz",
    "Basque": "bat bi hiru lau bost sei zazpi zortzi bederatzi hamar",
    "Turkish": "bir iki üç dört beş altı yedi sekiz dokuz on",
    "Welsh": "un dau tri pedwar pump chwech saith wyth naw deg",
    "Irish": "aon dó trí ceathair cúig sé seacht ocht naoi deich",
}
spelling = krein.EditSimilarity()


def alike(one: tuple[str, ...], other: tuple[str, ...]) -> float:
    """Mean similarity of the ten pairs of words."""
    return float(sum(spelling([a], [b])[0, 0] for a, b in zip(one, other, strict=True)) / len(one))


languages = [tuple(words.split()) for words in NUMBERS.values()]
print(
    f"English and German: {alike(languages[0], languages[1]):.2f}, English and Basque: {alike(languages[0], languages[22]):.2f}"
)

# %%
# ``krein.pairwise`` makes a kernel of the function; the objects are tuples of words.
embedding = krein.KernelPCA(n_components=2, kernel=krein.pairwise(alike, n_jobs=1), random_state=0).fit(languages)
figure, ax = plt.subplots(figsize=(9, 6.5), layout="constrained")
ax.margins(0.1)
MapDisplay.from_estimator(embedding, languages, names=NUMBERS, ax=ax)
ax.set_title("Languages by their words for one to ten")
plt.show()
