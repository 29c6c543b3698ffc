//! The permissions of this process according to /proc. They are for messages only: the kernel
//! decides.

use std::fs;

use crate::sys;

/// Permissions of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    pub uid: u32,
    /// Effective capabilities, one bit each (capabilities(7)).
    pub capabilities: u64,
    /// In a user namespace other than the initial one: capabilities apply to its own objects (such
    /// as the lab's interfaces), and never to the bpf(2) call.
    pub user_namespace: bool,
    /// Maximum memory that may be locked, octets (RLIMIT_MEMLOCK); `None`: no limit.
    pub memlock: Option<u64>,
    /// `kernel.unprivileged_bpf_disabled`: 0 is no, 1 and 2 are yes; `None` if the kernel has no
    /// BPF.
    pub unprivileged_bpf_disabled: Option<u8>,
}

/// Capabilities that a port may need, by number and name (linux/capability.h).
pub const CAPABILITIES: [(u8, &str); 6] = [
    (NET_ADMIN, "CAP_NET_ADMIN"),
    (NET_RAW, "CAP_NET_RAW"),
    (14, "CAP_IPC_LOCK"),
    (SYS_ADMIN, "CAP_SYS_ADMIN"),
    (38, "CAP_PERFMON"),
    (BPF, "CAP_BPF"),
];
const NET_ADMIN: u8 = 12;
const NET_RAW: u8 = 13;
const SYS_ADMIN: u8 = 21;
const BPF: u8 = 39;

/// Name of the initial user namespace; its number is PROC_USER_INIT_INO in include/linux/proc_ns.h.
const INITIAL_USER_NAMESPACE: &str = "user:[4026531837]";

impl Permissions {
    pub fn of_this_process() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        let namespace =
            fs::read_link("/proc/self/ns/user").map(|link| link.to_string_lossy().into_owned());
        let bpf = fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled");
        Self {
            uid: sys::euid(),
            capabilities: capabilities
                .and_then(|c| u64::from_str_radix(c.trim(), 16).ok())
                .unwrap_or(0),
            user_namespace: namespace.is_ok_and(|name| name != INITIAL_USER_NAMESPACE),
            memlock: memlock(&limits),
            unprivileged_bpf_disabled: bpf.ok().and_then(|text| text.trim().parse().ok()),
        }
    }

    /// Names of the [`CAPABILITIES`] that the process has.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        CAPABILITIES.into_iter().filter(|(number, _)| self.has(*number)).map(|(_, name)| name)
    }

    fn has(&self, capability: u8) -> bool {
        self.capabilities >> capability & 1 == 1
    }

    /// Whether packet sockets can be opened, judging by the capabilities.
    ///
    /// # Errors
    /// The missing capability, and what to try.
    pub fn packet_sockets(&self) -> Result<(), String> {
        if self.has(NET_RAW) {
            return Ok(());
        }
        Err("needs CAP_NET_RAW; try sudo, setcap cap_net_raw+ep on the binary, or the private \
             lab: squall lab up"
            .into())
    }

    /// Whether interfaces can be created, judging by the capabilities.
    ///
    /// # Errors
    /// The missing capability, and what to try.
    pub fn new_interfaces(&self) -> Result<(), String> {
        if self.has(NET_ADMIN) {
            return Ok(());
        }
        Err("needs CAP_NET_ADMIN; try sudo, or ports in memory (loop:0)".into())
    }

    /// Whether XDP programs can be loaded and attached to interfaces.
    ///
    /// # Errors
    /// The missing capabilities, and what to try.
    pub fn xdp_programs(&self) -> Result<(), String> {
        if self.user_namespace {
            return Err("needs BPF, which the kernel does not allow in user namespaces; try the \
                        lab as root: sudo squall lab up"
                .into());
        }
        let bpf = self.has(BPF) || self.has(SYS_ADMIN);
        let missing: Vec<_> =
            [(bpf, "CAP_BPF"), (self.has(NET_ADMIN) || self.has(SYS_ADMIN), "CAP_NET_ADMIN")]
                .into_iter()
                .filter(|(has, _)| !has)
                .map(|(_, name)| name)
                .collect();
        match missing[..] {
            [] => Ok(()),
            _ => Err(format!(
                "needs {}; try sudo, or setcap cap_net_raw,cap_net_admin,cap_bpf+ep on the binary",
                missing.join(" and ")
            )),
        }
    }
}

/// Parses `Max locked memory         8388608              8388608              bytes`: the soft
/// limit, which is in force, then the hard limit.
fn memlock(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_decide_and_a_user_namespace_forbids_bpf() {
        let all = Permissions { capabilities: u64::MAX, ..Permissions::default() };
        assert_eq!((all.packet_sockets(), all.xdp_programs()), (Ok(()), Ok(())));
        assert_eq!(all.new_interfaces(), Ok(()));
        assert_eq!(all.names().count(), CAPABILITIES.len());
        let lab = Permissions { user_namespace: true, ..all };
        assert!(lab.packet_sockets().is_ok());
        assert!(lab.xdp_programs().unwrap_err().contains("user namespaces"));
        let none = Permissions::default();
        assert!(none.packet_sockets().unwrap_err().contains("CAP_NET_RAW"));
        assert!(none.new_interfaces().unwrap_err().contains("CAP_NET_ADMIN"));
        assert!(none.xdp_programs().unwrap_err().contains("CAP_BPF and CAP_NET_ADMIN"));
    }

    #[test]
    fn a_limit_is_read_and_none_is_none() {
        let line = |soft: &str| {
            format!("Max processes 1 1 processes\nMax locked memory         {soft}  9   bytes\n")
        };
        assert_eq!(
            (memlock(&line("8388608")), memlock(&line("unlimited"))),
            (Some(8_388_608), None)
        );
    }
}
