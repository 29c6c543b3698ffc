//! The kinds of ports, in a single table. It is used to open and choose them, and for messages,
//! `squall ports` and docs/reference/ports.md. A new backend needs one more entry.

#[cfg(not(feature = "dpdk"))]
#[path = "no_dpdk.rs"]
mod squall_port_dpdk;

use std::io;

use squall_port::{Address, Port, PortFacts};
use squall_port_linux::{InterfaceInfo, Permissions};

/// A kind of port.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The part before the colon of an address.
    pub name: &'static str,
    /// The form of its addresses, such as `af_packet:IFACE`.
    pub address: &'static str,
    pub what: &'static str,
    /// Requirements on the system and the user's permissions.
    pub needs: &'static str,
    /// Checks whether this machine meets the kind's requirements, beyond the features of this
    /// build. Returns the release that was found, or describes the missing part.
    pub here: fn() -> Result<String, String>,
    pub open: Opener,
    /// Set only for kinds on a kernel interface.
    pub interface: Option<OnInterface>,
}

/// Opens a port; `None` if another crate opens this kind.
type Opener = fn(&Address) -> io::Result<Option<Box<dyn Port>>>;

/// Properties by which a kind is chosen for an interface.
#[derive(Clone, Copy, Debug)]
pub struct OnInterface {
    /// Whether it works on the interface, as far as this is known without changing anything.
    /// Returns a short description, or the reason why not.
    pub can: fn(&InterfaceInfo, &Permissions) -> Result<String, String>,
    /// Ranks by speed among the kinds, for sending and for receiving; 1 is the fastest
    /// (docs/measuring.md), `None` means unsupported.
    pub send: Option<u8>,
    pub receive: Option<u8>,
    /// Options (`,key=value`) to append to an address made from a bare name, so that the port does
    /// not disturb the host.
    pub host_safe_options: &'static str,
    /// Key and value for ports that only send, so that no memory is set up to receive.
    pub sending: Option<(&'static str, &'static str)>,
    /// Default options for ports whose frames are answered.
    pub answering: Option<Answering>,
    /// Whether it may be chosen for a bare interface name. Returns an argument in its favor, or the
    /// reason why it must be named.
    pub for_bare_name: fn(Use) -> Result<&'static str, &'static str>,
}

/// Options for ports whose frames are answered.
#[derive(Clone, Copy, Debug)]
pub struct Answering {
    /// Key and value that deliver each frame at once, instead of a block at a time.
    pub at_once: (&'static str, &'static str),
    /// Key for the number of workers that receive, used if there are several.
    pub queues: &'static str,
}

/// Use of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Send,
    Receive,
    Both,
}

/// Requirements of a session on a port.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    pub to: Use,
    /// Number of workers that send on it at the same time.
    pub workers: u32,
    /// Whether GSO frames are sent on it.
    pub cuts: bool,
    /// Whether received frames are answered. If so, they are needed at once, and not when a block
    /// is full.
    pub answers: bool,
    /// Number of workers that each have a receive queue, with the frames of their own flows.
    pub players: u32,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { to: Use::Both, workers: 1, cuts: false, answers: false, players: 1 }
    }
}

impl OnInterface {
    /// Rank by speed for that use, lower is faster; `None` if it is not supported.
    pub fn place(&self, wanted: Use) -> Option<u8> {
        match wanted {
            Use::Send => self.send,
            Use::Receive => self.receive,
            Use::Both => Some(self.send? + self.receive?),
        }
    }
}

/// All kinds. Those on an interface come first, and the most general of these last.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "xdp_live",
        address: "xdp_live:IFACE",
        what: "an interface, through a program in the kernel that makes the frames of streams, or \
               takes those of captures",
        needs: "CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN; an interface that takes frames from XDP",
        here: built_in,
        open: squall_port_linux::open,
        interface: Some(OnInterface {
            can: |interface, permissions| {
                squall_port_linux::xdp_live::works(interface, permissions)
                    .map(|()| "live frames".to_owned())
            },
            send: Some(1),
            receive: None,
            host_safe_options: "",
            sending: None,
            answering: None,
            for_bare_name: |_| Err("it only sends, and does not support every profile"),
        }),
    },
    Kind {
        name: "af_xdp",
        address: "af_xdp:IFACE",
        what: "an Ethernet interface, through AF_XDP sockets that bypass the host's network stack",
        needs: "CAP_NET_RAW; to receive also CAP_BPF and CAP_NET_ADMIN, which a user namespace \
                cannot give",
        here: built_in,
        open: squall_port_linux::open,
        interface: Some(OnInterface {
            // Opening a port loads a program without attaching it, so this changes nothing.
            can: |interface, permissions| {
                let facts = opens("af_xdp", interface)?;
                let best = match interface.xdp.features {
                    Some(f) if f.zero_copy => "zero-copy if the driver agrees",
                    Some(f) if f.native => "native, frames are copied",
                    Some(_) => "generic",
                    None => "AF_XDP sockets",
                };
                Ok(match facts.rx_queues {
                    0 => {
                        let why = permissions
                            .xdp_programs()
                            .err()
                            .unwrap_or_else(|| "no XDP program can be loaded".into());
                        format!("{best}; sends only: {why}")
                    }
                    _ => best.to_owned(),
                })
            },
            send: Some(2),
            receive: Some(2),
            // With zero-copy, the driver would take the queue away from the host.
            host_safe_options: ",rx_queues=0,zerocopy=0",
            // The memory of a receive ring, 64 MiB by default, takes 50 ms to set up.
            sending: Some(("rx_queues", "0")),
            answering: None,
            for_bare_name: |wanted| match wanted {
                Use::Send => {
                    Ok("the fastest that sends every stream and attaches nothing to the interface")
                }
                _ => Err("it attaches a program to the interface and takes frames from the host \
                          and from tcpdump, so it must be named"),
            },
        }),
    },
    Kind {
        name: "af_packet",
        address: "af_packet:IFACE",
        what: "an Ethernet interface, through packet sockets",
        needs: "CAP_NET_RAW",
        here: built_in,
        open: squall_port_linux::open,
        interface: Some(OnInterface {
            // Opening a port sends nothing and does not disturb the host.
            can: |interface, _| opens("af_packet", interface).map(|_| "packet sockets".to_owned()),
            send: Some(9),
            receive: Some(9),
            host_safe_options: "",
            sending: None,
            answering: Some(Answering { at_once: ("frames", "1"), queues: "rx_queues" }),
            for_bare_name: |_| {
                Ok("packet sockets see every frame that arrives and take none from the host")
            },
        }),
    },
    Kind {
        name: "dpdk",
        address: "dpdk:DEVICE",
        what: "a NIC or virtual device of DPDK: a PCI address, or vdev=NAME",
        needs: "DPDK and its shim (make dpdk); a NIC bound to vfio-pci",
        here: || squall_port_dpdk::release().map_err(|e| e.to_string()),
        open: squall_port_dpdk::open,
        interface: None,
    },
    Kind {
        name: "loop",
        address: "loop:NAME",
        what: "a link in memory; two ports of one name are its two ends",
        needs: "nothing",
        here: built_in,
        open: squall_port::open,
        interface: None,
    },
    Kind {
        name: "null",
        address: "null:",
        what: "takes every frame, sends none: shows the cost of a program without a port",
        needs: "nothing",
        here: built_in,
        open: squall_port::open,
        interface: None,
    },
    Kind {
        name: squall_port::elsewhere::KIND,
        address: "elsewhere:NAME",
        what: "a port of another node of the run: nothing is sent or received here",
        needs: "nothing",
        here: built_in,
        open: squall_port::open,
        interface: None,
    },
    Kind {
        name: "pcap",
        address: "pcap:FILE",
        what: "writes a capture of the frames sent; pcap:FILE,read reads a capture",
        needs: "only the file",
        here: built_in,
        open: squall_port::open,
        interface: None,
    },
];

fn built_in() -> Result<String, String> {
    Ok("built in".into())
}

/// Whether each kind works on an interface: a short description, or the reason why not.
pub fn on_interface(
    interface: &InterfaceInfo,
    permissions: &Permissions,
) -> impl Iterator<Item = (&'static Kind, Result<String, String>)> {
    KINDS.iter().filter_map(move |kind| Some((kind, (kind.interface?.can)(interface, permissions))))
}

/// The kind that would be chosen for a bare name now.
pub fn chosen(
    interface: &InterfaceInfo,
    permissions: &Permissions,
    wanted: Use,
) -> Option<&'static Kind> {
    let fits = |(_, on): &(&Kind, OnInterface)| {
        (on.for_bare_name)(wanted).is_ok() && (on.can)(interface, permissions).is_ok()
    };
    candidates(wanted).into_iter().find(fits).map(|(kind, _)| kind)
}

/// Kinds on interfaces that support `wanted`, fastest first.
pub fn candidates(wanted: Use) -> Vec<(&'static Kind, OnInterface)> {
    let on_interface = KINDS.iter().filter_map(|kind| Some((kind, kind.interface?)));
    let mut fit: Vec<_> = on_interface.filter(|(_, on)| on.place(wanted).is_some()).collect();
    fit.sort_by_key(|(_, on)| on.place(wanted));
    fit
}

fn opens(kind: &str, interface: &InterfaceInfo) -> Result<PortFacts, String> {
    let opened = crate::ports::open(&format!("{kind}:{}", interface.name), Wanted::default());
    opened.map(|(port, _, _)| port.facts().clone()).map_err(|e| e.to_string())
}

/// Text of `docs/reference/ports.md`.
pub fn reference() -> String {
    let mut text = "# Kinds of ports\n\n<!-- Generated by `cargo xtask generate` from \
                    crates/squall-machine/src/kinds.rs. -->\n\nThe [guide](../guide/ports.md) \
                    describes the kinds and their options, and \
                    [permissions](../guide/permissions.md) how to grant\nthe \
                    capabilities. For a bare interface name, Squall takes the first kind by speed \
                    that works there and\nneed not be named.\n\n| address | what it is | \
                    needs | place by speed: send, receive | for a bare \
                    name |\n|---|---|---|---|---|\n"
        .to_owned();
    for kind in KINDS {
        let place = |place: Option<u8>| place.map_or("-".into(), |p| p.to_string());
        let (places, for_bare_name) = kind.interface.as_ref().map_or_else(
            || ("-".to_owned(), "-".to_owned()),
            |on| {
                let uses = [
                    (Use::Send, "to send"),
                    (Use::Receive, "to receive"),
                    (Use::Both, "to do both"),
                ];
                let words = uses.into_iter().filter(|(u, _)| on.place(*u).is_some());
                let words: Vec<String> = words
                    .map(|(wanted, word)| match (on.for_bare_name)(wanted) {
                        Ok(_) => word.to_owned(),
                        Err(why) => format!("not {word}: {why}"),
                    })
                    .collect();
                (format!("{}, {}", place(on.send), place(on.receive)), words.join("; "))
            },
        );
        text += &format!(
            "| `{}` | {} | {} | {places} | {for_bare_name} |\n",
            kind.address, kind.what, kind.needs
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_opens_something_and_has_an_address_of_its_name() {
        for kind in KINDS {
            assert!(kind.address.starts_with(&format!("{}:", kind.name)), "{}", kind.address);
            // No kind has this option. The error must be about the option, not about an unknown
            // kind.
            let address: Address =
                format!("{}:nothing,no_such_option=1", kind.name).parse().unwrap();
            let opened = (kind.open)(&address);
            assert!(
                opened.is_err(),
                "{}: takes any option, or is not of the crate that is to open it",
                kind.name
            );
        }
    }

    #[test]
    fn ranks_differ_and_the_last_kind_on_an_interface_supports_every_use() {
        let on: Vec<_> = KINDS.iter().filter_map(|kind| kind.interface).collect();
        for wanted in [Use::Send, Use::Receive] {
            let mut places: Vec<_> = on.iter().filter_map(|on| on.place(wanted)).collect();
            let before = places.len();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), before, "{wanted:?}");
        }
        let last = on.last().unwrap();
        assert!(
            [Use::Send, Use::Receive, Use::Both]
                .into_iter()
                .all(|u| last.place(u).is_some() && (last.for_bare_name)(u).is_ok())
        );
    }
}
