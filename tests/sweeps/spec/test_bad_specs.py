"""Generated bad specs: each is refused with one message that names the field, and no trace.

Every spec is a full, valid one with one thing changed that cannot be right.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sweeps.cli.main import main
from sweeps.engine.cell import Cells
from sweeps.spec import load_spec
from sweeps.store import Store, file_name

FULL: dict[str, Any] = yaml.safe_load("""
name: full
datasets: [{name: blobs-1.7, points: 200, test_points: 100}, iris]
model: {name: mlp, widths: [8, 8], activation: tanh, dropout: 0.1}
methods:
  standard: {lr: {loguniform: [0.001, 0.1]}, try_first: [{lr: 0.01}]}
  mine:
    method: dual_focal
    training: {epochs: 3}
    gamma: [1, 2]
    form: {choice: [dfl, two_term]}
    gamma2: {uniform: [0, 3], when: {form: two_term}}
    alpha1: 0.5
  mixup: {alpha: {integer: [1, 5], log: true}}
protocol:
  {name: mine, validation: 0.2, meta_validation: 30, drawn_validation: 0.3, share_validation: false,
   choice: 0.5, same_training_rows: true}
training:
  epochs: 4
  batch_size: 64
  optimiser: sgd
  momentum: 0.5
  clip_norm: 1.0
  ema_decay: 0.9
  warmup_epochs: 1
  schedule: step
  milestones: [0.3, 0.6]
  decay: 0.5
  augmentation: none
  stop_on: nll
  stop_ties: latest
  patience: 3
  evaluate_every: 2
  mixed_precision: false
  threads: 1
  kernels: default
  channels_last: false
  reliability_snapshots: 2
search:
  {sampler: tpe, trials: 3, time: 10m, resolution: 2, objective: [{metric: nll}], seed: 4,
   batch: 4}
scheduler: {name: asha, grace: 1, reduction: 2}
confirm_seeds: 2
calibrators: [temperature]
ensembles: false
equivalence: {nll: 0.02}
bins: 10
large_test: 500
table:
  title: Somebody 2020
  rows: {CE: standard, Best: oracle}
  metrics: [ece, accuracy]
  published: {iris: {CE: {ece: 0.1}}}
  quoted: {iris: {XY: {ece: 0.2}}}
  percent: false
seed: 1
resources: {cpu: 1, gpu: 0, device: cpu}
cohort: auto
retries: 2
time_limit: 1h
tracking: {uri: databricks, experiment: mine}
""")


class Bad(NamedTuple):
    """The text of a bad spec and the top-level key that is to blame."""

    text: str
    key: str


# Values that cannot be right, by field; `number` and its like stand for the lists below.
WRONG: dict[str, Any] = yaml.safe_load(r"""
name: [text, "", " ", ../up, a/b, -a, .a, a b, ü, records, "a\n", "\0", long]
datasets: [null, 3, iris, {}, [], [nonsense], [iris, iris], [3], ["no.such:Thing"], [[]]]
datasets.0.name: [word, "json:dumps"]
datasets.0.points: [9, 100000000, 50.5, many, null, [100]]
datasets.0.otherwise: [nonsense, 3, []]
model: [null, 3, [], {}, nonsense, {widths: [8]}, "json:dumps", resnet18]
model.name: [word]
model.widths: [null, 8, wide, [0], [-1], [1000000000, 1000000000], [65000, 65000], [2.5], [a]]
model.activation: [word]
model.dropout: [1, -0.1, much, null, []]
methods: [null, 3, none, standard, [], {}, [3], [standard, standard], [[]], [standard, {}]]
methods.standard: [3, some, [], [1]]
methods.standard.lr.loguniform: [[0, 1], [-1, 1], [0.1], null, wide, [1, 1], [0.1, 1.0e+300]]
methods.standard.try_first: [3, null, {}, [3], [{lr: 1}], [{nonsense: 1}], [lr], [{lr: null}]]
methods.standard.grid: [3, null, {}, [{lr: 0.1}], [3]]
methods.mine.method: [word, "json:dumps", "no.such:Thing"]
methods.mine.training: [null, 3, short, []]
methods.mine.training.epochs: [number, 0, 10000001]
methods.mine.gamma: [null, "1", true, -1, 21, [], [1, 1], [1, null], [1, a], {}, [[1]]]
methods.mine.gamma2.uniform: [null, 1, [], [1], [2, 1], [0, 99], [0, a], [0, 1, 2], [0, true]]
methods.mine.gamma2.when:
  [null, 3, [], {}, {form: []}, {form: nonsense}, {nonsense: 1}, {gamma2: 1}, {alpha1: 2}]
methods.mine.form.choice: [null, [], dfl, [dfl, dfl], [nonsense], [1]]
methods.mine.alpha1: [null, "0.5", true, -1, 11, [], {}, {normal: [0, 1]}, {uniform: [0, 1], x: 1}]
methods.mixup.alpha.log: [null, 3, "yes", []]
protocol: [null, 3, [], {}, nonsense, ""]
protocol.name: [text]
protocol.validation: [0, 1.0, -1, 1.5, "0.2", true, null, []]
protocol.meta_validation: [0, 1.0, -1, 1.5, "0.2", true, null, []]
protocol.drawn_validation: [0, 1.0, -1, 1.5, "0.2", true, []]
protocol.share_validation: [0, 1, "yes", null, []]
protocol.choice: [0, 1.0, -1, "half", true, []]
protocol.same_training_rows: [0, 1, "yes", null, []]
training: [null, 3, short, [], [1]]
training.epochs: [number, 0, 10000001]
training.batch_size: [number, 0, half]
training.optimiser: [word, [adam, sgd], "json:dumps", "no.such:Thing"]
training.momentum: [number, -0.1, 1]
training.clip_norm: [optional, -1, 0]
training.ema_decay: [optional, 0, 1]
training.warmup_epochs: [number, -1]
training.schedule: [word]
training.milestones: [null, 3, early, [0], [1], [0.6, 0.3], [0.3, 0.3], [a], [true], ["0.3"]]
training.decay: [number, 0, 1]
training.augmentation: [word, crop_flip, [], [flip, nonsense], [flip]]
training.stop_on: [word, ece]
training.stop_ties: [word, error]
training.patience: [optional, 0, 1]
training.evaluate_every: [number, 0, 4]
training.mixed_precision: [null, 0, 1, "no", []]
training.threads: [number, 0, 2, 1025]
training.reliability_snapshots: [number, -1, 51]
search: [null, 3, tpe, []]
search.sampler: [word, "json:dumps", "no.such:Thing"]
search.trials: [optional, 0, 100001]
search.time: [0, -1, 1.0e+10, "10", ten, 10x, m, -5m, nans, infs, "", true, [], {}]
search.resolution: [number, 0, 1001]
search.objective: [3, null, [], nonsense, [nll, nll], [nll, 3], refinement, [nll, ece, ece],
  [nll, ece, ace, mce, error], {metric: nll, direction: maximize}, {metric: nll, direction: up}]
search.seed: [optional, -1, 2147483648]
search.batch: [optional, 0, 100001]
scheduler: [null, 3, [], nonsense, true]
scheduler.name: [word]
scheduler.grace: [optional, 0, 3, 4]
scheduler.reduction: [number, 1, 101]
confirm_seeds: [number, 0, 1001]
calibrators: [null, 3, slow, {}, [nonsense], [temperature, temperature], [3], ["json:dumps"], [""]]
ensembles: [null, 0, 1, "no", []]
equivalence: [3, small, [], {nonsense: 0.1}]
equivalence.nll: [-1, small, null, []]
bins: [number, 1, 10001]
large_test: [number, -1, 10000001]
table: [3, a table, []]
table.title: [text]
table.rows: [null, 3, [], {}, {CE: nonsense}, {CE: standard + nonsense}, {CE: 3}]
table.metrics: [null, 3, [], {}, [nonsense], [3]]
table.published: [null, 3, [], {iris: 3}, {iris: {CE: {nll: 1}}}, {iris: {XY: {ece: 1}}}]
table.published.iris.CE.ece: ["0.1", null, true, []]
table.quoted: [null, 3, [], {iris: 3}, {iris: {XY: {nll: 1}}}, {iris: {CE: {ece: 1}}}]
table.quoted.iris.XY.ece: ["0.1", null, true, []]
table.percent: [null, 0, 1, "yes", []]
seed: [number, -1, 2147483648]
resources: [null, 3, big, []]
resources.cpu: [number, 0, -1, 10001]
resources.gpu: [number, -1, 1001, 1.5, 0.001]
resources.device: [3, tpu, cuda, [], true]
retries: [number, -1, 101]
cohort: [number, 0, 1001, none]
time_limit: [0, -1, 1.0e+10, "10", ten, 10x, "", true, [], {}]
tracking: [null, 3, [], true]
tracking.uri: ["", mlruns, "ftp://host", "file:///tmp/x", "http://", 3, [], "http://\n"]
tracking.experiment: ["", 3, [], "a\nb", long]
""")
NO_NUMBER = ["3", "many", "", "½", "٣", "1e", True, False, [3], {}, 1e300, -1e300, -(10**15)]
STANDING_FOR: dict[str, list[Any]] = {
    "number": [*NO_NUMBER, None],
    "optional": NO_NUMBER,
    "text": [3, 1.5, True, None, []],
    "word": [3, True, None, "nonsense", "", " ", "TPE!", "ünïcode", "\x07", "\u202e", "x" * 999],
    "long": ["x" * 999],
}
JUNK: list[Any] = [{"nonsense": 1}, [[["deep"]]], [None], {"": {"": []}}, [{"a": [{}]}]]
"""Nothing takes any of these."""
REQUIRED = ["name", "datasets", "methods", "protocol.name", "datasets.0.name", "model.name"]
REQUIRED += ["table.title", "table.rows", "table.metrics"]
MAPPINGS = ["", "training", "search", "search.objective.0", "scheduler", "resources", "tracking"]
MAPPINGS += ["table", "protocol", "model", "datasets.0", "methods.mine", "methods.mine.training"]
MAPPINGS += ["methods.mine.gamma2", "methods.standard.lr"]
ODD_TAGS = """
!!timestamp foo § !!timestamp 2001-99-99 § !!timestamp [a] § !!omap [a] § !!omap {a: 1}
!!pairs [a] § !!pairs {a: 1} § !!set [a] § !!binary ü § !!binary [a] § !!python/name:os.system
!!int [1] § !!python/object:os.system {} § !!python/object/new:os.system [id]
!!merge a § !!value a § !<x> a § !!python/module:os § !!float
!!bool § !!int '' § !!map a § !!seq a § !!nonsense {a: [1]}
""".replace("\n", " § ").split(" § ")[1:-1]
"""Values whose tags do not fit, or are none of a spec's."""
BROKEN_YAML = r"""
[ § { § ] § } § ' § " § @a § `a` § %a § *nowhere § &a [*a] § &a {b: *a} § a: b: c § [a, b § {a: 1
!!python/object/apply:os.system [id] § !unknown 1 § !!set {a} § !!binary aGk= § !!int x § !!float x
2001-12-14 § 2001-12-14 21:59:43 § !!bool maybe § = § << § {[a]: 1} § {1: a} § {null: a} § {true: a}
'a' 'b' § "\ud800" § "\q" § .nan § .inf § -.inf § 1.0e+999 § - a § ? a § {a: 1, a: 2} § [1, 2]]
!!map [a] § [&a 1, *b] § --- a § !!str [a] § !!seq {a: 1} § {<<: 3} § "\x00 § {? [a] : 1}
""".replace("\n", " § ").split(" § ")[1:-1]
BROKEN_YAML += ODD_TAGS
BROKEN_YAML += ["\x07", "\x00", "\x1b[31m", "\ufffe", "|\n a\n\tb", "9" * 400, "9" * 5000]
BROKEN_YAML += ["0x" + "f" * 300, "[" * 60 + "]" * 60, "[" * 3000, "- " * 500, "\n  a\n b: 1"]
BROKEN_YAML += ["{a: " * 60 + "1" + "}" * 60, "-" + "1" * 99, "1:" * 99 + "1"]


def path_of(field: str) -> list[str | int]:
    return [int(part) if part.isdecimal() else part for part in field.split(".") if part]


def at(spec: Any, path: list[str | int]) -> Any:
    for part in path:
        spec = spec[part]
    return spec


def flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**9)
    return text.removesuffix("...\n").strip()


LINES = {key: f"{key}: {flow(value)}\n" for key, value in FULL.items()}


def with_line(key: str, line: str) -> str:
    return "".join((LINES | {key: line}).values())


def replaced(path: list[str | int], value: Any) -> Bad:
    key = str(path[0])
    part = copy.deepcopy({key: FULL.get(key)})
    at(part, path[:-1])[path[-1]] = value
    quoted = json.dumps(key, ensure_ascii=False)
    return Bad(with_line(key, f"{quoted}: {flow(part[key])}\n"), key)


def removed(field: str) -> Bad:
    key, *inner = path_of(field)
    part = copy.deepcopy({key: FULL[str(key)]})
    del at(part, [key, *inner][:-1])[[key, *inner][-1]]
    return Bad(with_line(str(key), f"{key}: {flow(part[key])}\n" if part else ""), str(key))


def rewritten(key: str, text: str) -> Bad:
    """The value of a top-level key as raw text."""
    return Bad(with_line(key, f"{key}: {text}\n"), key)


def repeated(key: str) -> Bad:
    return Bad("".join([*LINES.values(), LINES[key]]), key)


def laughing(levels: int, width: int, form: str) -> Bad:
    lines = [f"x-0: &l0 {'{k: 1}' if form == 'merge' else '[1]'}"]
    for level in range(1, levels + 1):
        parts = ", ".join([f"*l{level - 1}"] * width)
        inner = f"[{parts}]" if form == "list" else f"{{<<: [{parts}], k{level}: 1}}"
        lines.append(f"x-{level}: &l{level} {inner}")
    return Bad("\n".join([*lines, *LINES.values()]), "x-")


@st.composite
def bad_values(draw: st.DrawFn) -> Bad:
    field = draw(st.sampled_from(list(WRONG)))
    value = draw(st.sampled_from([*WRONG[field], *JUNK]))
    if isinstance(value, str) and value in STANDING_FOR:
        value = draw(st.sampled_from(STANDING_FOR[value]))
    return replaced(path_of(field), value)


ODD_KEYS = ["epochz", "Name", "__class__", "ключ", "x" * 200, "\U0001f600", "a.b", "a\nb", "null"]


@st.composite
def unknown_keys(draw: st.DrawFn) -> Bad:
    path = path_of(draw(st.sampled_from(MAPPINGS)))
    taken = {*at(FULL, path), "otherwise", "grid", "log", "lr", "weight_decay", "direction"}
    letters = st.characters(exclude_categories=["C", "Zl", "Zp"])
    keys = st.text(letters, max_size=30) | st.sampled_from(ODD_KEYS)
    key = draw(keys.filter(lambda k: k not in taken and not k.startswith("x-")))
    bad = replaced([*path, key], draw(st.sampled_from([1, "a", None, [], {}])))
    return bad if path else Bad(bad.text, key)


def bad_texts() -> st.SearchStrategy[Bad]:
    return st.builds(rewritten, st.sampled_from(list(FULL)), st.sampled_from(BROKEN_YAML))


BAD_SPECS = st.one_of(
    bad_values(),
    bad_values(),
    unknown_keys(),
    bad_texts(),
    st.builds(removed, st.sampled_from(REQUIRED)),
    st.builds(repeated, st.sampled_from(list(FULL))),
    st.builds(laughing, st.integers(8, 40), st.integers(9, 12), st.sampled_from(["list", "merge"])),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    working = tmp_path / "working"
    working.mkdir()
    monkeypatch.chdir(working)
    return tmp_path


@contextlib.contextmanager
def captured() -> Iterator[io.StringIO]:
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        yield errors


def names(message: str, path: Path, key: str) -> bool:
    """Whether ``calsweep: PATH:LINE: FIELD: …`` has a field at or below ``key``."""
    shown = key if key.isprintable() and 0 < len(key) <= 80 else repr(key)[:60]
    return (
        re.match(re.escape(f"calsweep: {path}") + r":\d+: " + re.escape(shown), message) is not None
    )


def test_the_full_spec_is_valid_and_uses_every_field(tmp_path: Path) -> None:
    path = tmp_path / "full.yaml"
    path.write_text("".join(LINES.values()), encoding="utf-8")
    spec = load_spec(path).spec
    assert set(FULL) == set(type(spec).model_fields)
    for name in ("training", "search", "scheduler", "resources", "tracking", "table", "protocol"):
        assert set(FULL[name]) == set(type(getattr(spec, name)).model_fields), name


@pytest.mark.slow
def test_generated_bad_specs_name_their_field_and_leave_no_trace(place: Path) -> None:
    seen: set[str] = set()

    @settings(
        max_examples=260,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(BAD_SPECS)
    def refused(bad: Bad) -> None:
        seen.add(bad.text)
        path = place / "bad.yaml"
        path.write_text(bad.text, encoding="utf-8")
        with captured() as errors:
            code = main(["run", str(path), "--store", str(place / "store")])
        message = errors.getvalue()
        assert code == 2, message
        assert names(message, path, bad.key), (bad.key, message)
        assert message.count("\n") == 1, message
        assert len(message) < 2000
        assert "Traceback" not in message
        assert sorted(place.rglob("*")) == [path, place / "working"]

    refused()
    assert len(seen) >= 200


def test_the_authors_own_keys_may_hold_anything(place: Path) -> None:
    """What stands below ``x-`` is not even made; what a spec takes from there is checked."""
    path = place / "own.yaml"
    for value in [*ODD_TAGS, "2001-12-14", "{[a]: 1, 2: b}", ".nan", "!!timestamp foo"]:
        path.write_text("".join([*LINES.values(), f"x-q: {value}\n"]), encoding="utf-8")
        assert load_spec(path).spec.name == "full"
    taken = with_line("retries", "x-q: &q !!timestamp foo\nretries: *q\n")
    path.write_text(taken, encoding="utf-8")
    with captured() as errors:
        assert main(["check", str(path)]) == 2
    assert "retries: found the date 'foo'" in errors.getvalue()


LONG = "x" * 300
FAR = "x/" * 3000


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", LONG],
        ["check", FAR],
        ["check", "good.yaml", "--store", LONG],
        ["check", "good.yaml", "--store", FAR],
        ["check", "good.yaml", "--store", "ü" * 150],
        ["run", "good.yaml", "--store", f"file:///{LONG}"],
        ["run", "name.yaml"],
        ["run", "row.yaml"],
        ["run", "path.yaml"],
        ["run", "folder.yaml"],
        ["run", "a\0b.yaml"],
        ["run", "."],
        ["sync", "good.yaml", "--store", FAR],
        ["status", LONG],
        ["status", FAR],
        ["status", "a\0b"],
        ["report", f"{LONG}.yaml"],
        ["report", "good", "--out", LONG],
        ["compare", LONG, LONG],
        ["compare", "a", "b", "--store-b", FAR],
        ["export", "good", "--out", LONG],
        ["show", LONG],
        ["ui", LONG],
        ["ui", f"{LONG}.yaml"],
        ["ui", "tags.yaml"],
        ["init", "--data", f"{LONG}.csv"],
        ["init", "--data", "good.csv", "--target", "y", "--out", LONG],
        ["posthoc", f"{FAR}.npz"],
        ["posthoc", "good.csv", "--out", LONG],
        ["apply", LONG, "good.csv", "--out", "o.csv"],
        ["apply", "good.yaml", f"{LONG}.csv", "--out", "o.csv"],
        ["nightly", LONG],
        ["baseline", "show", "--nights", FAR],
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_names_that_no_file_can_have_are_one_message(place: Path, arguments: list[str]) -> None:
    def spec(name: str = "good", row: str = "standard", dataset: str = "iris") -> str:
        return f"name: {name}\ndatasets: [{dataset}]\nmethods: {{{row}: {{method: standard}}}}\n"

    specs = {
        "good": spec(),
        "name": spec(name=LONG),
        "row": spec(row=LONG),
        "path": spec(dataset=f"{{name: table, path: {LONG}, target: y}}"),
        "folder": spec(dataset=f"{{name: cifar10, data_dir: {FAR}, otherwise: iris}}"),
        "tags": "name: !!timestamp foo\n",
    }
    for name, text in specs.items():
        Path(f"{name}.yaml").write_text(text, encoding="utf-8")
    Path("good.csv").write_text("a,b,y\n" + "1,2,0\n3,4,1\n" * 30, encoding="utf-8")
    before = sorted(place.rglob("*"))
    with captured() as errors:
        assert main(arguments) == 2, errors.getvalue()
    message = errors.getvalue()
    assert message.startswith("calsweep: ")
    assert message.count("\n") == 1, message
    assert sorted(place.rglob("*")) == before


def test_long_names_that_files_can_have_are_taken(place: Path) -> None:
    """Of a table and a row whose letters take several bytes each: a part of a path is short."""
    table = "ü" * 120
    Path(f"{table}.csv").write_text("a,b,y\n" + "1,2,0\n3,4,1\n" * 30, encoding="utf-8")
    text = f"name: long\ndatasets: [{{name: table, path: {table}.csv, target: y}}]\n"
    text += f"methods: {{{'漢' * 79}1: {{method: standard}}, {'漢' * 79}2: {{method: standard}}}}\n"
    Path("long.yaml").write_text(text, encoding="utf-8")
    loaded = load_spec(Path("long.yaml"))
    cells = Cells(loaded)
    ids = [cells.cell(table, row).study_id for row in loaded.spec.methods]
    assert len(set(ids)) == 2
    store = Store("runs")
    for study in ids:
        store.write_suggestion("long", study, 0, {"lr": 0.1})
        assert store.suggestions("long", study) == {0: {"lr": 0.1}}
    both = "_".join(file_name(name) for name in (table, *loaded.spec.methods)[:2])
    store.write_file("long", f"figures/{both}-weights.png", b"drawn")
    assert store.files("long", "figures") == [f"figures/{both}-weights.png"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n# nothing\n",
        b"null",
        b"- a\n- b",
        b"just text",
        b"42",
        b"2001-12-14",
        b"\x00\x01\x02",
        b"\xff\xfe\x00a",
        "name: ü".encode("utf-16"),
        b"name: a\n---\nname: b",
        b"a: " * 2000,
        b"[" * 100_000,
        b"x" * 1_000_000,
        b"\xef\xbb\xbfname: [",
        b"&a [*a]",
        b"{1: 2}",
        b"x-only: 1",
    ],
)
def test_what_is_no_spec_at_all_is_one_message(place: Path, content: bytes) -> None:
    path = place / "bad.yaml"
    path.write_bytes(content)
    with captured() as errors:
        assert main(["run", str(path), "--store", str(place / "store")]) == 2
    message = errors.getvalue()
    assert message.startswith(f"calsweep: {path}:")
    assert message.count("\n") == 1
    assert sorted(place.rglob("*")) == [path, place / "working"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "bad",
    [
        laughing(30, 10, "list"),
        rewritten("name", '"\\ud800"'),
    ],
    ids=["billion laughs", "surrogate"],
)
def test_a_real_process_exits_2_with_one_message_and_no_trace(place: Path, bad: Bad) -> None:
    path = place / "bad.yaml"
    path.write_text(bad.text, encoding="utf-8")
    command = [sys.executable, "-m", "sweeps.cli", "run", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=place / "working")
    assert done.returncode == 2
    assert names(done.stderr, path, bad.key)
    assert done.stderr.count("\n") == 1
    assert sorted(place.rglob("*")) == [path, place / "working"]
