//! Drops the privileges of a daemon that is started as root.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt, chown},
    path::Path,
};

use squall::Error;
use squall_machine::kinds;
use squall_port_linux::user::{NET_BIND_SERVICE, User, capabilities_of};
use squall_units::Cannot;

use crate::{Settings, ports::like};

/// Becomes `settings.user`, if set. Creates the data directory for that user.
///
/// # Errors
/// If there is no such user, the process does not run as root, the directory belongs to another
/// user, or a kind of port needs root.
pub fn become_user(settings: &Settings) -> Result<(), Error> {
    let Some(name) = &settings.user else { return Ok(()) };
    if rustix::process::geteuid().as_raw() != 0 {
        return Err(Error::Environment(format!(
            "--user {name}: only root can become another user\n  try sudo"
        )));
    }
    let user = User::find(name).map_err(|error| Error::Usage(format!("--user: {error}")))?;
    let keep: Vec<u8> = needed(settings)?.into_iter().collect();
    let wrong = |error: io::Error| {
        let what = format!("give {} to user {name}", settings.data.display());
        Error::Environment(Cannot::of_io(what, &error).to_string())
    };
    hand_over(&settings.data, &user).map_err(wrong)?;
    user.switch_permanently(&keep)
        .map_err(|error| Error::Environment(format!("--user {name}: {error}")))
}

/// Capabilities for the kinds of ports that patterns allow. Interfaces of a lab count for any kind,
/// because they need no pattern.
fn needed(settings: &Settings) -> Result<BTreeSet<u8>, Error> {
    let mut keep = BTreeSet::new();
    let any = settings.allow.is_empty().then(|| "*".to_owned());
    for pattern in settings.allowed().into_iter().chain(any) {
        let of_kind = pattern.split_once(':').map(|(kind, _)| kind);
        for kind in kinds::KINDS {
            // A pattern without a kind matches the interface with any kind.
            let meant =
                of_kind.map_or(kind.interface.is_some(), |of_kind| like(of_kind, kind.name));
            match capabilities_of(kind.name) {
                Some(capabilities) if meant => keep.extend(capabilities),
                None if meant && of_kind == Some(kind.name) => {
                    return Err(Error::Usage(format!(
                        "--allow {pattern}: {} ports need root, not only its capabilities\n  try \
                         it without --user",
                        kind.name
                    )));
                }
                _ => {}
            }
        }
    }
    // Linux restricts ports below 1,024 to CAP_NET_BIND_SERVICE (capabilities(7)).
    let low = |port: u16| (1..1024).contains(&port);
    if low(settings.listen.port()) || settings.grpc.is_some_and(|grpc| low(grpc.port())) {
        keep.insert(NET_BIND_SERVICE);
    }
    Ok(keep)
}

/// Creates the data directory for the user. Changes the owner of an empty directory of root;
/// refuses one with files, because root's token and certificate must not pass to the user.
fn hand_over(data: &Path, user: &User) -> io::Result<()> {
    if let Some(above) = data.parent() {
        fs::create_dir_all(above)?;
    }
    match fs::DirBuilder::new().mode(0o700).create(data) {
        Ok(()) => return chown(data, Some(user.uid), Some(user.gid)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    // Do not follow a link, because root would otherwise give away its target.
    let about = fs::symlink_metadata(data)?;
    if about.uid() == user.uid {
        return Ok(());
    }
    let is_root_owned = about.is_dir() && about.uid() == 0;
    if is_root_owned && fs::read_dir(data)?.next().is_none() {
        return chown(data, Some(user.uid), Some(user.gid));
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "belongs to user {}, not to {}\n  try --data FOLDER, or chown -R {} {}",
            about.uid(),
            user.name,
            user.name,
            data.display()
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_capabilities_are_those_of_the_allowed_kinds() {
        let of = |allow: &[&str], port: u16| {
            let mut settings = Settings::of_test("/nowhere".into());
            settings.allow = allow.iter().map(|&pattern| pattern.into()).collect();
            settings.listen.set_port(port);
            needed(&settings)
                .map(|keep| keep.into_iter().collect::<Vec<_>>())
                .map_err(|error| error.to_string())
        };
        assert_eq!(of(&["af_packet:eth1"], 0), Ok(vec![13]));
        assert_eq!(of(&["af_packet:eth1"], 443), Ok(vec![10, 13]));
        assert_eq!(of(&["af_xdp:eth1", "pcap:*"], 8443), Ok(vec![12, 13, 14, 39]));
        let every = Ok(vec![12, 13, 14, 38, 39]);
        assert_eq!(
            (of(&["eth1"], 0), of(&[], 0), of(&["*:eth1"], 0)),
            (every.clone(), every.clone(), every)
        );
        assert!(of(&["dpdk:*"], 0).unwrap_err().contains("need root"));
    }
}
