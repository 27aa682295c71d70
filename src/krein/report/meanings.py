"""What every number on the page means, in a sentence or two, and what to make of it."""

from __future__ import annotations

__all__ = ["MEANINGS"]

MEANINGS: dict[str, tuple[str, str]] = {
    # key: (term of the glossary, what it means)
    "objects": ("Objects", "How many rows, texts or other things were compared: n."),
    "sampled": (
        "Sampled objects",
        "Objects drawn at random and compared with each other; what is said of the similarity is measured on them. "
        "Where they are all objects, it is exact.",
    ),
    "evaluations": (
        "Similarities evaluated",
        "How often the kernel was asked for k(x, y), and that in percent of all n² pairs.",
    ),
    "features": ("Features", "Columns of numbers each row has, after text became one column per category."),
    "range": ("Range", "The lowest or the highest similarity that was seen."),
    "diagonal": (
        "Self-similarity",
        "k(x, x), how similar objects are to themselves: lowest and highest. For many kernels it is the same for all.",
    ),
    "negative-entries": ("Negative similarities", "The share of pairs whose similarity is below zero."),
    "asymmetry": (
        "Asymmetry",
        "The largest difference of k(x, y) and k(y, x) over the largest similarity. It is rounding: a similarity that "
        "is not symmetric is refused.",
    ),
    "positive": ("Positive eigenvalues", "How many eigenvalues of the sample's matrix are above zero."),
    "zero": ("Zero eigenvalues", "How many eigenvalues are zero as far as rounding lets one see."),
    "negative": (
        "Negative eigenvalues",
        "How many eigenvalues are below zero. With one the similarity is no inner product: it is indefinite.",
    ),
    "eigenvalue": (
        "Eigenvalue",
        "Of the matrix of similarities, sorted. A positive semi-definite (psd) matrix, as most kernel methods need, "
        "has none below zero.",
    ),
    "place": ("Place", "The place of an eigenvalue when they are sorted, the largest first."),
    "negative-share": (
        "Negative share",
        "The negative eigenvalues' part of the sum of all magnitudes: 0 % for a psd matrix, at most 50 % if "
        "self-similarities are not negative. The interval holds with 95 % for samples of this size.",
    ),
    "share-of-all": (
        "Negative share of all objects",
        "Larger samples have a larger negative share, so the sample's is a lower bound; the second number is what "
        "follows if it grows on as it did within the sample.",
    ),
    "trend-objects": ("Objects in a subset", "The size of the subsets of the sample that a row is a mean over."),
    "trend-spread": ("Spread", "The standard deviation of the negative share among subsets of that size."),
    "trend-smallest": ("Smallest eigenvalue of subsets", "Of subsets of that size, on average."),
    "smallest": ("Smallest eigenvalue", "The lowest of all; a shift by its magnitude makes the matrix psd."),
    "largest": ("Largest eigenvalue", "The highest of all: how much of the matrix one direction holds."),
    "negative-squares": (
        "Negative squared distances",
        "The share of pairs for which k(x, x) + k(y, y) − 2 k(x, y), a squared distance if k is an inner product, is "
        "negative.",
    ),
    "triangle": (
        "Triangle violated",
        "The share of triples for which going from x to z by y is shorter than going straight.",
    ),
    "bin": ("Similarity", "The interval of similarities that a bar of the histogram counts."),
    "count": ("Pairs", "Ordered pairs of different objects of the sample with a similarity in that interval."),
    "blocks": ("Blocks", "Groups of similar objects the matrix is cut into: c. Within a group it is kept best."),
    "block-share": (
        "Share in diagonal blocks",
        "How much of the matrix (of its squared Frobenius norm) lies within the groups. Far above chance: the objects "
        "cluster, and blocks are worth having.",
    ),
    "block-chance": ("By chance", "What blocks of these sizes would hold of a matrix without any structure."),
    "rank": ("Rank", "Directions kept per block: k. More of them: a lower error, and more memory."),
    "bytes": ("Memory", "Bytes of the factored matrix of all objects, bases and core."),
    "full-bytes": ("Full matrix", "Bytes that all n² similarities would take as 8-byte numbers."),
    "memory-share": ("Memory in percent", "Bytes of the factored matrix in percent of the full one."),
    "error": (
        "Relative error",
        "|K − approximation| / |K| in the Frobenius norm: 0 is exact, 1 is nothing. Where it is a forecast, it is from "
        "the sample alone.",
    ),
    "how-known": (
        "How it is known",
        "sample: from the sample's own matrix. trend: so many blocks are too many for the sample, the error follows "
        "that of fewer. Of a search: coarse, refined and trend are forecasts; built and kept are measured.",
    ),
    "mark": ("Mark", "What stands out: the choice that was made, or would be recommended."),
    "correction": (
        "Correction",
        "What is done to negative eigenvalues so that the matrix is psd. none: nothing. shift: the smallest is added "
        "to the diagonal. clip: they become 0. flip: they become positive. square: all are squared.",
    ),
    "change": (
        "Change of the matrix",
        "How far a correction moves the sample's matrix, relative to its Frobenius norm. clip is the least there is; "
        "square changes the scale, so no number is given.",
    ),
    "correction-score": (
        "Score with the correction",
        "Accuracy or R² on rows that were left out, after the correction, by cross-validation on the sample, with a "
        "95 % interval. Intervals that overlap: the data do not say which is better.",
    ),
    "score-rank": (
        "Rank kept",
        "How many eigenvalues of the sample's matrix are kept, the largest in magnitude; the last row keeps all. "
        "sufficient: the smallest rank within one standard error of the best.",
    ),
    "rank-score": (
        "Score at a rank",
        "Accuracy or R² on rows that were left out, by ridge on the eigenvalues kept. Where it still rises at high "
        "ranks, an approximation of small rank loses it.",
    ),
    "rank-error": ("Standard error of a rank's score", "How far the score may be off because few rows were left out."),
    "n-negative": ("Negative eigenvalues before", "Of the approximated matrix, before the machine's correction."),
    "score": (
        "Score",
        "Accuracy (share of rows classified rightly) or R² (1: perfect, 0: no better than the mean) of the machine on "
        "rows it had not seen; the mean over folds.",
    ),
    "score-interval": (
        "Confidence",
        "A 95 % interval of the mean score, by Student's t over the folds (by the normal distribution where one part "
        "was held out). Folds share training rows, so it is somewhat too narrow.",
    ),
    "fold": ("Fold", "One part of the rows, predicted by a machine that was fitted to all others."),
    "baseline": ("Baseline", "The same score of always answering the commonest class, or the mean."),
    "tested": ("Rows tested", "Rows that were predicted without having been learned from."),
    "block": ("Block", "The number of a group of rows, in the order they are stored."),
    "block-rows": ("Rows of a block", "How many rows are in the group."),
    "block-rank": ("Rank of a block", "Directions its rows are described by."),
    "directions": ("Directions", "Ranks of all blocks together: the size of the core."),
    "coupling": (
        "Coupling",
        "The Frobenius norm of the approximated matrix between two blocks, in percent of the largest such norm. 0: the "
        "two are not coupled at all.",
    ),
    "coupled": ("Coupled", "yes: similarities between blocks are kept. no: each block stands on its own."),
    "tried-score": ("Score when tried", "Accuracy or R² of rows left out, by ridge, on a subsample of the rows."),
    "gamma": ("gamma", "The kernel's width parameter: the larger, the faster similarity falls with distance."),
    "stored": ("Stored as", "The type of number the bases are kept in."),
    "stage": ("Stage", "What the time was spent on."),
    "seconds": ("Seconds", "Of wall time on the machine where it ran."),
    "iterations": ("Iterations", "Steps of the solver, all of its problems together."),
    "converged": ("Converged", "Whether the solver reached its tolerance before its limit of steps."),
}
