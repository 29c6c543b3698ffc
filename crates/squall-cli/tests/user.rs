//! `squall serve --user`: what the process may do when it serves.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn serve(data: &PathBuf, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_squall"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--grpc", "off", "--json", "--data"]).arg(data).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_daemon_that_root_starts_for_a_user_is_that_users_with_what_its_ports_need() {
    if !fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
        println!("SKIPPED: needs root");
        return;
    }
    let nobody = fs::read_to_string("/etc/passwd").unwrap();
    let nobody = nobody.lines().find_map(|line| line.strip_prefix("nobody:")).expect("nobody is known");
    let uid: u32 = nobody.split(':').nth(1).unwrap().parse().unwrap();
    // Not below the build's folder, which the user may not be able to enter.
    let folder = std::env::temp_dir().join(format!("squall-user-{}", std::process::id()));
    _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let data = folder.join("data");
    let mut daemon = Ends(serve(&data, &["--user", "nobody", "--allow", "af_packet:eth1"]).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(daemon.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut daemon.0.stderr.take().unwrap(), &mut said).unwrap();
        panic!("it does not serve: {said}");
    }
    let bound: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(fs::metadata(bound["token_file"].as_str().unwrap()).unwrap().uid(), uid);
    // Of all of its threads.
    for thread in fs::read_dir(format!("/proc/{}/task", daemon.0.id())).unwrap() {
        let status = fs::read_to_string(thread.unwrap().path().join("status")).unwrap();
        let of =
            |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default().trim().to_owned();
        assert_eq!(of("Uid:").split_whitespace().collect::<Vec<_>>(), vec![uid.to_string(); 4]);
        assert!(!of("Groups:").split_whitespace().any(|group| group == "0"), "{status}");
        let only = format!("{:016x}", 1u64 << 13);
        assert_eq!((of("CapPrm:"), of("CapEff:"), of("CapBnd:")), (only.clone(), only.clone(), only), "CAP_NET_RAW");
        assert_eq!((of("CapInh:"), of("NoNewPrivs:")), ("0".repeat(16), "1".into()));
    }
    drop(daemon);
    // What root's daemon has left is not another user's.
    let of_root = folder.join("root");
    fs::create_dir(&of_root).unwrap();
    fs::write(of_root.join("token"), "secret").unwrap();
    let refused = serve(&of_root, &["--user", "nobody"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("chown"), "{refused:?}");
    for (user, why) in [("no-such-user", "not known"), ("root", "is root")] {
        let refused = serve(&data, &["--user", user]).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{user}");
        assert!(String::from_utf8_lossy(&refused.stderr).contains(why), "{refused:?}");
    }
    fs::remove_dir_all(folder).unwrap();
}
