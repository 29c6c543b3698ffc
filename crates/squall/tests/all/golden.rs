//! Compares the frames of profiles in tests/golden with the captures of the same name, octet for
//! octet. `BLESS=1` rewrites the captures; review the difference. The frames are the same for any
//! number of workers and any kind of port.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use squall::{Profile, Session, report::Report};
use squall_offline::info::Settings;

fn folder() -> PathBuf {
    // The directory must be absolute, because messages and `path` in profiles have relative paths.
    fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden")).unwrap()
}

fn profiles() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.retain(|path| path.extension().is_some_and(|suffix| suffix == "toml"));
    found.sort();
    assert!(found.len() >= 12, "{found:?}");
    found
}

fn load(path: &Path) -> Profile {
    Profile::load(path.to_str().unwrap()).unwrap_or_else(|e| panic!("{e}"))
}

/// Runs a profile, with its only port at `address`.
fn run(mut profile: Profile, address: &str, cores: Option<usize>) -> Report {
    profile.ports[0].address = address.into();
    let session = Session {
        options: squall::RunOptions {
            cores,
            fingerprint: Some(true),
            clock: Some(squall_options::Clock::Virtual),
            ..Default::default()
        },
        ..Session::new(profile)
    };
    let report =
        session.open().unwrap_or_else(|e| panic!("{e}")).start().unwrap().finish().unwrap();
    assert!(report.verdict.valid, "{address}: {:?}", report.verdict);
    report
}

fn fingerprint(report: &Report) -> &str {
    report.ports[0].tx.fingerprint.as_deref().expect("a fingerprint was asked for")
}

#[test]
fn each_profile_sends_the_frames_that_a_person_has_read() {
    let blessing = std::env::var_os("BLESS").is_some();
    let temporary = std::env::temp_dir().join(format!("squall-golden-{}", std::process::id()));
    fs::create_dir_all(&temporary).unwrap();
    let mut wrong = Vec::new();
    // Some profiles use a frame from another profile's capture, so sort the profiles by dependency.
    let mut profiles = profiles();
    profiles.sort_by_key(|path| fs::read_to_string(path).unwrap().contains("\npcap "));
    for path in profiles {
        let golden = path.with_extension("pcap");
        let made = temporary.join(golden.file_name().unwrap());
        let report = run(load(&path), &format!("pcap:{}", made.display()), Some(1));
        let (made, tx) = (fs::read(&made).unwrap(), &report.ports[0].tx);
        assert!(
            tx.packets <= 200 && made.len() <= 20_000,
            "{}: {} frames, {} octets",
            path.display(),
            tx.packets,
            made.len()
        );
        if blessing {
            fs::write(&golden, &made).unwrap();
        } else if fs::read(&golden).ok().as_deref() != Some(&made) {
            wrong.push(golden);
        }
    }
    fs::remove_dir_all(temporary).unwrap();
    assert!(
        wrong.is_empty(),
        "not as in {wrong:#?}\nBLESS=1 cargo test -p squall --test all golden rewrites them"
    );
}

#[test]
fn any_number_of_workers_sends_the_same_frames_to_any_port() {
    for path in profiles() {
        let profile = load(&path);
        let one = run(profile.clone(), "null:virtual", Some(1));
        let counts = |report: &Report| -> BTreeMap<String, (u64, u64)> {
            report.streams.iter().map(|s| (s.name.clone(), (s.tx_packets, s.tx_octets))).collect()
        };
        for (address, cores) in [
            ("null:virtual", 2),
            ("null:virtual", 3),
            ("null:virtual", 8),
            ("loop:golden,virtual", 1),
            ("loop:golden,virtual", 2),
        ] {
            let other = run(profile.clone(), address, Some(cores));
            let name = format!("{} on {cores} workers at {address}", path.display());
            assert_eq!(fingerprint(&other), fingerprint(&one), "{name}");
            assert_eq!(counts(&other), counts(&one), "{name}");
            if address.starts_with("loop") {
                let (tx, rx) = (&other.ports[0].tx, &other.ports[0].rx);
                assert_eq!((tx.packets, &tx.fingerprint), (rx.packets, &rx.fingerprint), "{name}");
                assert!(
                    other
                        .streams
                        .iter()
                        .all(|s| s.rx.as_ref().is_none_or(|rx| rx.lost == 0
                            && rx.duplicates == 0
                            && rx.reordered == 0)),
                    "{name}"
                );
            }
        }
    }
}

/// Only profiles with random parts may depend on the seed.
#[test]
fn another_seed_gives_other_frames_where_something_is_random() {
    for path in profiles() {
        let (mut profile, text) = (load(&path), fs::read_to_string(&path).unwrap());
        let before = run(profile.clone(), "null:virtual", Some(1));
        profile.seed = Some(profile.effective_seed() + 1);
        let after = run(profile, "null:virtual", Some(1));
        // Random gaps are not listed, because they do not change the frames.
        let random = ["random", "weighted", "weights", "uniform = \"", "normal = {"]
            .iter()
            .any(|word| text.contains(word));
        assert_eq!(fingerprint(&before) != fingerprint(&after), random, "{}", path.display());
    }
}

/// Captures with examples of everything that `info` reports: protocols, tunnels, lengths, times,
/// deliberate errors; one capture is truncated.
#[test]
fn the_analysis_of_a_capture_equals_the_reviewed_one() {
    let (blessing, folder) = (std::env::var_os("BLESS").is_some(), folder());
    let settings =
        Settings { checksums: true, duplicates: 5, hash: true, top: 3, ..Settings::default() };
    let mut wrong = Vec::new();
    for name in ["headers-ethernet", "many", "tunnels", "wrong", "cut-off"] {
        let capture = folder.join(name).with_extension("pcap");
        let temporary =
            std::env::temp_dir().join(format!("squall-golden-{}.pcap", std::process::id()));
        let path = match name {
            "cut-off" => {
                let whole = fs::read(folder.join("sizes.pcap")).unwrap();
                fs::write(&temporary, &whole[..whole.len() - 7]).unwrap();
                &temporary
            }
            _ => &capture,
        };
        let mut info =
            squall_offline::info::read(std::slice::from_ref(path), &settings, |_| true).unwrap();
        assert_eq!(info.is_complete(), name != "cut-off", "{name}: {:?}", info.files[0].fault);
        // Reset values that depend on the machine.
        (info.command, info.squall_version, info.elapsed_s) = Default::default();
        (info.cpu, info.memory) = Default::default();
        let file = &mut info.files[0];
        if let Some(fault) = &mut file.fault {
            fault.text = fault.text.replace(&*path.to_string_lossy(), name);
        }
        file.path = name.into();
        let golden = folder.join("info").join(name).with_extension("json");
        let json = info.to_json() + "\n";
        if blessing {
            fs::write(&golden, json).unwrap();
        } else if fs::read_to_string(&golden).ok() != Some(json) {
            wrong.push(golden);
        }
        if name == "cut-off" {
            fs::remove_file(&temporary).unwrap();
        }
    }
    assert!(
        wrong.is_empty(),
        "not as in {wrong:#?}\nBLESS=1 cargo test -p squall --test all golden rewrites them"
    );
}
