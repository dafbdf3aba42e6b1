import json
import sys

import pytest
from vsketchdlc import cli
from vsketchdlc.errors import UserError
from vsketchdlc.model.axes import parse_values, read_aux
from vsketchdlc.model.timeline import write_simulated_trace


@pytest.fixture
def command(monkeypatch, capsys):
    """Run a vsketchdlc command; returns (exit status, stdout, stderr)."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["vsketchdlc", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        out = capsys.readouterr()
        return end.value.code, out.out, out.err

    return run


def test_values_lists_and_ranges():
    assert parse_values("3", float, "x") == [3.0]
    assert parse_values("10,25", float, "x") == [10.0, 25.0]
    assert parse_values("0:8:4,9", float, "x") == [0.0, 4.0, 8.0, 9.0]
    assert read_aux("2,0:3") == [0, 1, 2, 3]


@pytest.mark.parametrize("text", ["", "x", "5:1", "0:65", "-1", "1:2:3:4", "0:4:0"])
def test_impossible_counts_are_refused(text):
    with pytest.raises(UserError, match="aux"):
        read_aux(text)


def test_a_catalogue_network_without_any_trace(command):
    status, out, _ = command(
        "whatif",
        "--model",
        "alexnet",
        "--gpu",
        "p100",
        "--aux",
        "0:6",
        "--nic",
        "25",
        "--flow-cap",
        "5",
        "--json",
        "-",
    )
    answer = json.loads(out)["settings"][0]
    assert status == 0
    assert [row["aux"] for row in answer["predicted"]] == list(range(7))
    assert answer["chosen_aux"] > 0
    assert answer["bottleneck"].startswith("with 2 hosts the per-flow cap holds you back until")


def test_the_sentence_flips_when_the_cap_goes(command):
    words = ("whatif", "--model", "vgg16", "--aux", "0:4", "--nic", "10", "--cores", "32", "--json", "-")
    capped = json.loads(command(*words, "--flow-cap", "2")[1])["settings"][0]["bottleneck"]
    free = json.loads(command(*words, "--flow-cap", "none")[1])["settings"][0]["bottleneck"]
    assert "per-flow cap" in capped
    assert "per-flow cap" not in free


def test_calibrate_then_whatif_over_a_grid(command, demo, measured_probe, tmp_path):
    write_simulated_trace(demo, tmp_path / "trace", steps=6, seed=1)
    (tmp_path / "probe.json").write_text(json.dumps(measured_probe(demo).to_json()))
    calibration = tmp_path / "calibration.json"
    status, out, _ = command(
        "calibrate", tmp_path / "trace", "--probe", tmp_path / "probe.json", "-o", calibration
    )
    assert status == 0 and "next: vsketchdlc whatif" in out
    grid = ("--aux", "0,2,4", "--hosts", "2,4", "--nic", "4,10")
    result = tmp_path / "r.json"
    assert (
        command("whatif", tmp_path / "trace", "--calibration", calibration, *grid, "--json", result)[0] == 0
    )
    settings = json.loads(result.read_text())["settings"]
    assert [(s["hosts"], s["nic_bits_per_s"]) for s in settings] == [(2, 4e9), (2, 10e9), (4, 4e9), (4, 10e9)]
    assert all(len(s["predicted"]) == 3 for s in settings)


@pytest.mark.parametrize(
    "words,complaint",
    [
        (("whatif",), "give a trace folder or --model"),
        (("whatif", "/nonexistent"), "no trace at /nonexistent"),
        (("whatif", "--model", "lenet"), "not in the catalogue"),
        (("whatif", "--model", "alexnet", "--gpu", "abacus"), "no published time"),
        (("whatif", "--model", "alexnet", "--aux", "65"), "between 0 and 64"),
        (("whatif", "--model", "alexnet", "--hosts", "0"), "between 1 and 65536"),
        (("whatif", "--model", "alexnet", "--nic", "-3"), "NIC rate"),
        (("whatif", "--model", "alexnet", "--nic", "fast"), "NIC rate 'fast' is not understood"),
        (("whatif", "--model", "alexnet", "--cores", "0"), "cores is 0"),
        (("whatif", "--model", "alexnet", "--batch", "0"), "batch is 0"),
        (("whatif", "--model", "alexnet", "--calibration", "/nonexistent.json"), "cannot read calibration"),
        (("calibrate", "/nonexistent"), "no trace at"),
    ],
)
def test_bad_input_is_one_line_and_status_two(command, words, complaint):
    status, out, err = command(*words)
    assert status == 2 and out == ""
    assert complaint in err and len(err.strip().splitlines()) == 1


def test_every_output_holds_the_same_numbers(command, tmp_path):
    files = ("--json", tmp_path / "r.json", "--csv", tmp_path / "r.csv", "--html", tmp_path / "r.html")
    grid = (
        "--model",
        "alexnet",
        "--aux",
        "0:2",
        "--hosts",
        "2,4",
        "--nic",
        "10,25",
        "--price",
        "3",
        "--quiet",
    )
    assert command("whatif", *grid, *files) == (0, "", "")
    settings = json.loads((tmp_path / "r.json").read_text())["settings"]
    lines = (tmp_path / "r.csv").read_text().splitlines()
    assert len(lines) == 1 + 4 * 3
    steps = [row["step_s"] for setting in settings for row in setting["predicted"]]
    place = lines[0].split(",").index("step_s")
    assert [float(line.split(",")[place]) for line in lines[1:]] == steps
    page = (tmp_path / "r.html").read_text()
    assert "Throughput over hosts" in page and 'src="http' not in page
    row = settings[0]["predicted"][0]
    assert row["epoch_cost"] == pytest.approx(1_281_167 / row["samples_per_s"] / 3600 * 3 * 2)


def test_best_of_an_axis(command):
    words = ("whatif", "--model", "vgg16", "--aux", "0:4", "--nic", "10,25", "--flow-cap", "5", "--json", "-")
    best = json.loads(command(*words, "--best", "aux")[1])["best"]
    assert [row["nic_bits_per_s"] for row in best] == [10e9, 25e9]
    assert best[0]["aux"] < best[1]["aux"]
    fastest = json.loads(command(*words, "--best", "nic")[1])["best"]
    assert {row["aux"]: row["nic_bits_per_s"] for row in fastest}[4] == 25e9


def test_a_target_is_answered_in_words(command):
    status, out, _ = command("whatif", "--model", "resnet50", "--nic", "1", "--aux", "0:3", "--target", "60%")
    assert status == 0 and "60% needs a NIC of" in out


def test_racks_fp16_and_slow_cores_change_the_answer(command):
    def step(*words):
        answer = json.loads(
            command(
                "whatif",
                "--model",
                "vgg16",
                "--aux",
                "0",
                "--nic",
                "10",
                "--hosts",
                "4",
                *words,
                "--json",
                "-",
            )[1]
        )
        return answer["settings"][0]["predicted"][0]["step_s"]

    plain = step()
    assert step("--fp16", "yes") < 0.75 * plain
    assert step("--core-speed", "0.25") > 1.1 * plain
    assert step("--oversubscription", "8", "--hosts-per-rack", "2") > 1.2 * plain
    assert step("--batch", "128") > plain


def test_fp16_is_an_axis_like_the_others(command):
    words = ("whatif", "--model", "vgg16", "--aux", "0", "--nic", "10", "--hosts", "4")
    status, out, _ = command(*words, "--fp16", "no,yes", "--json", "-")
    settings = json.loads(out)["settings"]
    assert status == 0 and [setting["fp16"] for setting in settings] == [False, True]
    half, full = (setting["predicted"][0]["step_s"] for setting in reversed(settings))
    assert half < 0.75 * full
    assert "gradients as fp16" in command(*words, "--fp16", "yes")[1]
    status, _, err = command(*words, "--fp16", "maybe")
    assert status == 2 and "neither yes nor no" in err


def test_a_sweep_answers_from_its_folder(command, tmp_path):
    words = ("whatif", "--model", "alexnet", "--aux", "0,2", "--nic", "5:30", "--sweep", tmp_path / "s")
    status, out, _ = command(*words)
    assert status == 0 and "52 scenarios" in out
    assert command(*words)[0] == 0


@pytest.mark.parametrize(
    "words,complaint",
    [
        (("--best", "luck"), "choose one of aux, hosts"),
        (("--target", "110%"), "target"),
        (("--dask", "local"), "--dask needs --sweep"),
        (("--price", "-1"), "price is -1"),
        (("--oversubscription", "0.5"), "oversubscription is 0.5"),
        (("--cycle-ms", "-1"), "cycle time"),
        (("--rtt", "nan"), "rtt"),
        (("--core-speed", "0"), "core speed is 0"),
        (("--min-gain", "2"), "min-gain is 2"),
    ],
)
def test_impossible_options_are_refused_by_name(command, words, complaint):
    status, out, err = command("whatif", "--model", "alexnet", *words)
    assert status == 2 and out == "" and complaint in err and len(err.strip().splitlines()) == 1


def test_calibrate_checks_itself_on_another_run(command, demo, measured_probe, tmp_path):
    write_simulated_trace(demo, tmp_path / "a", steps=6, seed=1)
    write_simulated_trace(demo.replaced(aux=3), tmp_path / "b", steps=6, seed=2)
    (tmp_path / "probe.json").write_text(json.dumps(measured_probe(demo).to_json()))
    words = ("calibrate", tmp_path / "a", "--probe", tmp_path / "probe.json", "-o", tmp_path / "c.json")
    page = tmp_path / "residuals.html"
    status, out, _ = command(*words, "--check", tmp_path / "b", "--html", page, "--json", "-")
    check = json.loads(out)["checks"][0]
    assert status == 0 and abs(check["error"]) < 0.05 and check["inside"]
    assert "What the fit misses" in page.read_text()


def test_a_cluster_from_a_file_with_a_slow_host(command, tmp_path):
    file = tmp_path / "c.toml"
    hosts = "[hosts]\na = {{ cores = 4 }}\nb = {{ cores = 4, speed = {} }}\n[switches]\ns = {{}}\n"
    links = "".join(f'[[links]]\nbetween = ["{h}", "s"]\nrate = "10 Gbit/s"\n' for h in "ab")

    def step(speed):
        file.write_text(hosts.format(speed) + links)
        words = ("whatif", "--model", "alexnet", "--cluster", file, "--aux", "2", "--json", "-")
        return json.loads(command(*words)[1])["settings"][0]["predicted"][0]["step_s"]

    assert step(0.25) > 1.1 * step(1.0)
    status, _, err = command("whatif", "--model", "alexnet", "--cluster", file, "--nic", "10")
    assert status == 2 and "leave --nic out" in err
