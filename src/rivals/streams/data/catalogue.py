"""The data sets: addresses and checksums of the official files, sizes and licence terms.

The page of MNIST no longer serves its files; the addresses are PyTorch's mirror, with the MD5 of
the page. SVHN and notMNIST are served over http alone. The sources publish MD5; the SHA-256 are
those of the files with that MD5, and decide where they are known. notMNIST has no published
checksum and no split, so only its size is checked.
"""

from __future__ import annotations

from dataclasses import dataclass

from rivals.errors import unknown


@dataclass(frozen=True)
class DownloadSource:
    """One official file, and its name after unpacking."""

    role: str  # the name by which a reader asks for it
    path: str  # under a data root, as released
    unpacked: str  # the file or folder after unpacking, which is read too; "" if it is not packed
    url: str
    md5: str  # "" where none is published
    size: int  # bytes
    sha256: str = ""  # of the same file; "" where it is not known


@dataclass(frozen=True)
class DataSet:
    """A data set as released."""

    name: str
    title: str
    sources: tuple[DownloadSource, ...]
    classes: int
    train: int  # images when complete
    test: int  # 0 where the release has no split
    home: str
    terms: str
    lists: tuple[tuple[str, str], ...] = ()  # (role, path) of optional files beside the sources
    even: bool = True  # every class has the same number of images


def _idx(
    folder: str, base: str, facts: tuple[tuple[str, str, int, str], ...]
) -> tuple[DownloadSource, ...]:
    """The four IDX files of MNIST and of data sets in the same format."""
    roles = ("train-images", "train-labels", "test-images", "test-labels")
    return tuple(
        DownloadSource(
            role,
            f"{folder}/raw/{file}.gz",
            f"{folder}/raw/{file}",
            f"{base}{file}.gz",
            md5,
            size,
            sha256,
        )
        for role, (file, md5, size, sha256) in zip(roles, facts, strict=True)
    )


RESEARCH = "free for research, no formal licence at source"

CATALOGUE = (
    DataSet(
        "mnist",
        "MNIST",
        _idx(
            "MNIST",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            (
                (
                    "train-images-idx3-ubyte",
                    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                    9_912_422,
                    "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
                ),
                (
                    "train-labels-idx1-ubyte",
                    "d53e105ee54ea40749a09fcbcd1e9432",
                    28_881,
                    "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
                ),
                (
                    "t10k-images-idx3-ubyte",
                    "9fb629c4189551a2d022fa330f9573f3",
                    1_648_877,
                    "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
                ),
                (
                    "t10k-labels-idx1-ubyte",
                    "ec29112dd5afa0611ce80d1b7f02629c",
                    4_542,
                    "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
                ),
            ),
        ),
        10,
        60_000,
        10_000,
        "http://yann.lecun.com/exdb/mnist/",
        RESEARCH,
        even=False,
    ),
    DataSet(
        "fashion-mnist",
        "Fashion-MNIST",
        _idx(
            "FashionMNIST",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            (
                (
                    "train-images-idx3-ubyte",
                    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                    26_421_880,
                    "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
                ),
                (
                    "train-labels-idx1-ubyte",
                    "25c81989df183df01b3e8a0aad5dffbe",
                    29_515,
                    "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
                ),
                (
                    "t10k-images-idx3-ubyte",
                    "bef4ecab320f06d8554ea6380940ec79",
                    4_422_102,
                    "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
                ),
                (
                    "t10k-labels-idx1-ubyte",
                    "bb300cfdad3c16e7a12a480ee83cd310",
                    5_148,
                    "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
                ),
            ),
        ),
        10,
        60_000,
        10_000,
        "https://github.com/zalandoresearch/fashion-mnist",
        "MIT",
    ),
    DataSet(
        "cifar-10",
        "CIFAR-10",
        (
            DownloadSource(
                "archive",
                "cifar-10-python.tar.gz",
                "cifar-10-batches-py",
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                "c58f30108f718f92721af3b95e74349a",
                170_498_071,
                "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce",
            ),
        ),
        10,
        50_000,
        10_000,
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        RESEARCH,
    ),
    DataSet(
        "cifar-100",
        "CIFAR-100",
        (
            DownloadSource(
                "archive",
                "cifar-100-python.tar.gz",
                "cifar-100-python",
                "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                "eb9058c3a382ffc7106e4002c42a8d85",
                169_001_437,
                "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7",
            ),
        ),
        100,
        50_000,
        10_000,
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        RESEARCH,
    ),
    DataSet(
        "svhn",
        "SVHN",
        (
            DownloadSource(
                "train",
                "svhn/train_32x32.mat",
                "",
                "http://ufldl.stanford.edu/housenumbers/train_32x32.mat",
                "e26dedcc434d2e4c54c9b2d4a06d8373",
                182_040_794,
                "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            ),
            DownloadSource(
                "test",
                "svhn/test_32x32.mat",
                "",
                "http://ufldl.stanford.edu/housenumbers/test_32x32.mat",
                "eb5a983be6a315427106f1b164d9cef3",
                64_275_384,
                "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
            ),
        ),
        10,
        73_257,
        26_032,
        "http://ufldl.stanford.edu/housenumbers/",
        "non-commercial use",
        even=False,
    ),
    DataSet(
        "notmnist",
        "notMNIST (small)",
        (
            DownloadSource(
                "archive",
                "notMNIST/notMNIST_small.tar.gz",
                "notMNIST/notMNIST_small",
                "http://yaroslavvb.com/upload/notMNIST/notMNIST_small.tar.gz",
                "",
                8_458_043,
            ),
        ),
        10,
        18_724,  # readable; two more are empty files
        0,
        "http://yaroslavvb.blogspot.com/2011/09/notmnist-dataset.html",
        RESEARCH,
        (("train-list", "notMNIST/train.txt"), ("test-list", "notMNIST/test.txt")),
    ),
    DataSet(
        "omniglot",
        "Omniglot",
        (
            DownloadSource(
                "background",
                "omniglot-py/images_background.zip",
                "omniglot-py/images_background",
                "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
                "images_background.zip",
                "68d2efa1b9178cc56df9314c21c6e718",
                9_464_212,
                "ad41ab679c8b5d90b271ef46be6987cc81211774a695c29dcc5367b2b26ee640",
            ),
            DownloadSource(
                "evaluation",
                "omniglot-py/images_evaluation.zip",
                "omniglot-py/images_evaluation",
                "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
                "images_evaluation.zip",
                "6b91aef0f799c5bb55b94e3f2daec811",
                6_462_886,
                "1f61a8f3366785b057fc117d9228e78a16e3d976c8953b2a10fcc74cf0609cee",
            ),
        ),
        1_623,  # 964 characters in background, 659 others in evaluation
        19_280,
        13_180,
        "https://github.com/brendenlake/omniglot",
        "MIT",
    ),
    DataSet(
        "tiny-imagenet",
        "Tiny-ImageNet-200",
        (
            DownloadSource(
                "archive",
                "tiny-imagenet-200.zip",
                "tiny-imagenet-200",
                "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
                "90528d7ca1a48142e341f4ef8d21d0de",
                248_100_043,
                "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
            ),
        ),
        200,
        100_000,
        10_000,
        "https://cs231n.stanford.edu/tiny-imagenet-200.zip",
        "ImageNet terms: non-commercial research and education",
    ),
)


def dataset(name: str) -> DataSet:
    """The data set named `name`."""
    for entry in CATALOGUE:
        if entry.name == name:
            return entry
    raise unknown("data set", name, (entry.name for entry in CATALOGUE))
