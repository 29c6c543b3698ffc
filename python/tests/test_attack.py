import json
import pathlib

import pytest

import squall

RULES = """
alert http $EXTERNAL_NET any -> $HOME_NET any (msg:"T page"; flow:established,to_server; http.uri; content:"/p"; sid:1; rev:1;)
alert udp any any -> any 9000 (msg:"T datagram"; content:"|01 02 03|"; depth:3; classtype:bad-unknown; sid:2; rev:1;)
alert tcp any any -> any any (msg:"T never"; content:"a"; depth:1; content:"b"; depth:1; sid:3; rev:1;)
"""


@pytest.fixture
def rules(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "t.rules"
    path.write_text(RULES)
    return path


def test_rules_become_attacks_with_labels_that_an_engine_is_scored_by(
    rules: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    labels = tmp_path / "labels.jsonl"
    report = squall.attack(
        rules, f"pcap:{tmp_path / 'a.pcap'}", labels=labels, rate=10, near_miss="also"
    )
    [attack] = report.attacks
    assert (attack.chosen, attack.solved, attack.attacks, attack.near_misses) == (3, 2, 2, 2)
    assert attack.unsolved == {"contradiction": 1} and attack.unsolved_rules[0].sid == 3
    assert report.ports["A"].tx.packets == attack.frames
    rows = [json.loads(line) for line in labels.read_text().splitlines()]
    assert [(row["sid"], row["kind"], row["alerts"]) for row in rows[:2]] == [
        (1, "attack", 1),
        (1, "near_miss", 0),
    ]

    hit = next(row for row in rows if row["kind"] == "attack" and row["sid"] == 1)
    eve = {
        "timestamp": "2023-11-14T22:13:20.000500+0000",
        "event_type": "alert",
        "src_ip": hit["source"],
        "src_port": hit["source_port"],
        "dest_ip": hit["destination"],
        "dest_port": hit["destination_port"],
        "proto": "TCP",
        "alert": {"gid": 1, "signature_id": 1, "rev": 1, "signature": "T page"},
    }
    log = tmp_path / "eve.json"
    log.write_text(json.dumps(eve) + "\n")
    score = squall.score(labels, log)
    assert (score.counts["hit"], score.counts["missed"], score.rates["detection"]) == (1, 1, 0.5)
    assert [rule["sid"] for rule in score.rules] == [1, 2]
    assert "1 hit, 1 missed" in score.summary() and "<html" in score.to_html()


def test_attacks_stand_in_profiles(rules: pathlib.Path, tmp_path: pathlib.Path) -> None:
    profile = squall.Profile(ports={"A": f"pcap:{tmp_path / 'p.pcap'}"})
    profile.add(
        squall.Attack(
            rules=rules,
            sid=2,
            repeat=3,
            rate=100,
            inside=["10.0.0.1"],
            variables={"HOME_NET": "any"},
        )
    )
    again = squall.Profile.from_dict(profile.to_dict())
    assert again.attacks[0].repeat == 3 and again.to_toml() == profile.to_toml()
    report = squall.run(profile, labels=tmp_path / "labels.csv")
    assert report.attacks[0].attacks == 3
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 4


def test_errors_of_attacks_name_the_attack(rules: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with pytest.raises(squall.ProfileError, match="is not a sid"):
        squall.attack(rules, "null:,virtual", sid="x")
    with pytest.raises(squall.ProfileError, match=r"nowhere\.rules"):
        squall.attack("nowhere.rules", "null:,virtual")
    (tmp_path / "log").write_text("no alert\n")
    (tmp_path / "labels").write_text("nothing\n")
    with pytest.raises(squall.ProfileError, match="labels:1"):
        squall.score(tmp_path / "labels", tmp_path / "log")
