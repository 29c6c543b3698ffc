//! Rules in a NIC that choose the receive queue of a frame (ntuple filters, `ethtool -N`).
//!
//! The kernel keeps a rule until it is deleted, also after the process that set it has ended. So a
//! run records its rules in a file per interface and network namespace, and holds that file locked:
//! there `squall doctor --nic` and the next run find the rules of a run that was killed.

use std::{
    collections::BTreeSet,
    fmt,
    fs::File,
    io::{self, Read, Seek, SeekFrom, Write},
    net::IpAddr,
    path::PathBuf,
};

use squall_port::{SteerRule, Steered, Transport};

use crate::{Permissions, bypass, interface::InterfaceInfo, shared, sys::Socket};

// linux/ethtool.h
const ETHTOOL_GRXCLSRLCNT: u32 = 0x2e;
const ETHTOOL_GRXCLSRULE: u32 = 0x2f;
const ETHTOOL_GRXCLSRLALL: u32 = 0x30;
const ETHTOOL_SRXCLSRLDEL: u32 = 0x31;
const ETHTOOL_SRXCLSRLINS: u32 = 0x32;
const TCP_V4_FLOW: u32 = 1;
const UDP_V4_FLOW: u32 = 2;
const TCP_V6_FLOW: u32 = 5;
const UDP_V6_FLOW: u32 = 6;
const IP_USER_FLOW: u32 = 13;
const IPV6_USER_FLOW: u32 = 14;
const ETHER_FLOW: u32 = 18;
/// Value of `ip_ver` in a rule for all packets of IPv4.
const ETH_RX_NFC_IP4: u8 = 1;
/// The driver chooses the location of a rule.
const RX_CLS_LOC_ANY: u32 = u32::MAX;
/// In the answer to ETHTOOL_GRXCLSRLCNT: the driver supports that.
const RX_CLS_LOC_SPECIAL: u64 = 1 << 31;

// struct ethtool_rxnfc, 192 octets: cmd, flow_type, data (64 bits), a struct ethtool_rx_flow_spec,
// rule_cnt; then the locations of rules, from octet 188 on. The specification has flow_type, 52
// octets of values, 20 of an extension, both again as masks, ring_cookie (64 bits) and location.
const WORDS: usize = 48;
const DATA: usize = 2;
const FLOW_TYPE: usize = 4;
const RING_COOKIE: usize = 42;
const LOCATION: usize = 44;
const COUNT: usize = 46;
const LOCATIONS: usize = 47;
/// Octets of the values and of the masks.
const VALUES: usize = 20;
const MASKS: usize = 92;
/// Limits the buffer for an answer: tables have some thousand rules at most.
const MAX_COUNT: u32 = 1 << 16;
/// Limits the octets read of a record: some hundred rules.
const MAX_RECORD: u64 = 1 << 16;

/// The table of rules of a NIC, for `ethtool -n`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowRules {
    /// Number of rules that are set.
    pub set: u32,
    /// Number of rules that fit; `None` if the driver does not report it.
    pub room: Option<u32>,
    /// Locations of rules that a killed run of Squall left.
    pub stale: Vec<u32>,
}

impl FlowRules {
    /// Reads the table of an interface; `None` if its driver has none.
    pub fn of(interface: &str) -> Option<Self> {
        Self::read(&Ioctl::open(interface).ok()?, &bypass::folders(), interface)
    }

    fn read(driver: &dyn Driver, folders: &[PathBuf], interface: &str) -> Option<Self> {
        let table = Table::read(driver).ok()?;
        let own = Permissions::of_this_process().uid;
        let users = BTreeSet::from([own, 0]);
        let file = |folder: &PathBuf, user| {
            let file = shared::file_of(&folder.join(record_name(interface, user)?), user).ok()?;
            // A run that has not ended holds its record locked.
            file.try_lock_shared().ok().map(|()| file)
        };
        let files = folders.iter().flat_map(|folder| users.iter().map(move |&user| (folder, user)));
        let mut stale: Vec<u32> = files
            .filter_map(|(folder, user)| file(folder, user))
            .flat_map(|mut file| recorded(&mut file).unwrap_or_default())
            .filter(|rule| rule.is_set(driver))
            .map(|rule| rule.location)
            .collect();
        stale.sort_unstable();
        stale.dedup();
        Some(Self { set: table.count, room: table.size, stale })
    }
}

/// The driver of a NIC, as it answers ethtool's requests.
trait Driver: fmt::Debug + Send + Sync {
    /// Passes on a struct ethtool_rxnfc, perhaps with room for locations, and puts the answer in
    /// its place.
    fn request(&self, request: &mut [u32]) -> io::Result<()>;
}

/// An interface in the network namespace in which it was opened.
#[derive(Debug)]
struct Ioctl {
    socket: Socket,
    interface: String,
}

impl Ioctl {
    fn open(interface: &str) -> io::Result<Self> {
        let socket = Socket::new(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        Ok(Self { socket, interface: interface.to_owned() })
    }
}

impl Driver for Ioctl {
    fn request(&self, request: &mut [u32]) -> io::Result<()> {
        self.socket.ethtool(&self.interface, request)
    }
}

fn command(number: u32) -> [u32; WORDS] {
    let mut request = [0; WORDS];
    request[0] = number;
    request
}

/// The two words of a number of 64 bits at `at`.
fn long(request: &[u32], at: usize) -> u64 {
    let mut octets = [0; 8];
    octets[..4].copy_from_slice(&request[at].to_ne_bytes());
    octets[4..].copy_from_slice(&request[at + 1].to_ne_bytes());
    u64::from_ne_bytes(octets)
}

/// The request that sets a rule.
fn insertion(frames: Steered, queue: u32, location: u32) -> [u32; WORDS] {
    let mut octets = [0; 4 * WORDS];
    let mut put = |at: usize, value: &[u8], mask: &[u8]| {
        octets[VALUES + at..][..value.len()].copy_from_slice(value);
        octets[MASKS + at..][..mask.len()].copy_from_slice(mask);
    };
    let flow_type = match frames {
        Steered::Arp => {
            // struct ethhdr: two addresses, then the type.
            put(12, &[0x08, 0x06], &[0xff; 2]);
            ETHER_FLOW
        }
        Steered::Ip { to, transport } => {
            // struct ethtool_tcpip4_spec and ethtool_usrip4_spec begin with the source and the
            // destination; in the first, the ports follow. The same holds for IPv6.
            let (port_at, types) = match (to.address, to.mask()) {
                (IpAddr::V4(address), IpAddr::V4(mask)) => {
                    put(4, &address.octets(), &mask.octets());
                    (10, [IP_USER_FLOW, TCP_V4_FLOW, UDP_V4_FLOW])
                }
                (address, mask) => {
                    let octets = |address| match address {
                        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                        IpAddr::V6(address) => address.octets(),
                    };
                    put(16, &octets(address), &octets(mask));
                    (34, [IPV6_USER_FLOW, TCP_V6_FLOW, UDP_V6_FLOW])
                }
            };
            if let Some((_, port)) = transport {
                put(port_at, &port.to_be_bytes(), &[0xff; 2]);
            } else if types[0] == IP_USER_FLOW {
                put(13, &[ETH_RX_NFC_IP4], &[0]);
            }
            match transport {
                None => types[0],
                Some((Transport::Tcp, _)) => types[1],
                Some((Transport::Udp, _)) => types[2],
            }
        }
    };
    octets[4 * RING_COOKIE..][..8].copy_from_slice(&u64::from(queue).to_ne_bytes());
    let mut request = command(ETHTOOL_SRXCLSRLINS);
    for (word, four) in request.iter_mut().zip(octets.chunks_exact(4)).skip(FLOW_TYPE) {
        *word = u32::from_ne_bytes([four[0], four[1], four[2], four[3]]);
    }
    request[FLOW_TYPE] = flow_type;
    request[LOCATION] = location;
    request
}

/// The rules of a NIC.
#[derive(Debug)]
struct Table {
    count: u32,
    /// Number of rules that fit, if the driver reports it.
    size: Option<u32>,
    /// Whether the driver chooses the location of a rule.
    driver_chooses: bool,
    used: BTreeSet<u32>,
}

impl Table {
    fn read(driver: &dyn Driver) -> io::Result<Self> {
        let mut counted = command(ETHTOOL_GRXCLSRLCNT);
        driver.request(&mut counted)?;
        let count = counted[COUNT];
        let driver_chooses = long(&counted, DATA) & RX_CLS_LOC_SPECIAL != 0;
        let mut listed = vec![0; WORDS.max(LOCATIONS + count.min(MAX_COUNT) as usize)];
        (listed[0], listed[COUNT]) = (ETHTOOL_GRXCLSRLALL, count.min(MAX_COUNT));
        // Some drivers that choose locations do not list them.
        let (mut size, mut used) = (None, BTreeSet::new());
        if driver.request(&mut listed).is_ok() {
            size = u32::try_from(long(&listed, DATA)).ok().filter(|size| *size > 0);
            let count = listed[COUNT].min(count) as usize;
            used = listed[LOCATIONS..].iter().copied().take(count).collect();
        }
        Ok(Self { count, size, driver_chooses, used })
    }

    /// A free location, and the last one: rules of lower locations have priority, and the machine's
    /// owner set those. `None`: all are used.
    fn take(&mut self) -> Option<u32> {
        if self.driver_chooses {
            return Some(RX_CLS_LOC_ANY);
        }
        let free = (0..self.size?).rev().find(|location| !self.used.contains(location))?;
        self.used.insert(free);
        Some(free)
    }
}

/// A rule that a run has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SetRule {
    location: u32,
    queue: u32,
}

impl SetRule {
    /// Whether the NIC still has a rule there, to the same queue.
    fn is_set(self, driver: &dyn Driver) -> bool {
        let mut request = command(ETHTOOL_GRXCLSRULE);
        request[LOCATION] = self.location;
        driver.request(&mut request).is_ok() && long(&request, RING_COOKIE) == u64::from(self.queue)
    }

    fn delete(self, driver: &dyn Driver) -> io::Result<()> {
        let mut request = command(ETHTOOL_SRXCLSRLDEL);
        request[LOCATION] = self.location;
        driver.request(&mut request)
    }
}

/// Name of the file in which the rules of a run of `user` are recorded.
fn record_name(interface: &str, user: u32) -> Option<String> {
    Some(format!("{}{interface}.{user}.rules", bypass::prefix("steer")?))
}

/// The rules in a record: a line for each, with its location and its queue.
fn recorded(file: &mut File) -> io::Result<Vec<SetRule>> {
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.take(MAX_RECORD).read_to_string(&mut text)?;
    let rule = |line: &str| {
        let (location, queue) = line.split_once(' ')?;
        Some(SetRule { location: location.parse().ok()?, queue: queue.parse().ok()? })
    };
    Ok(text.lines().filter_map(rule).collect())
}

/// A NIC whose rules choose the queue of a port.
#[derive(Debug)]
pub struct Nic {
    interface: String,
    driver: String,
    /// Whether the driver's rules are switched off.
    is_off: bool,
    /// Number of queues in the table of RSS, and number of queues in use.
    rss_queues: Option<(u32, u32)>,
}

impl Nic {
    /// # Errors
    /// The driver has no rules; the message names it and what to try.
    pub fn open(interface: &InterfaceInfo) -> io::Result<Self> {
        let off = |one: &crate::Offload| one.name == "ntuple" && !one.on && !one.fixed;
        let used = interface.channels.map_or(interface.rx_queues, |c| c.rx + c.combined);
        let nic = Self {
            interface: interface.name.clone(),
            driver: interface.driver.clone(),
            is_off: interface.offloads.iter().any(off),
            rss_queues: interface.rss.map(|rss| (rss.queues, used)),
        };
        nic.check(&Ioctl::open(&nic.interface)?)?;
        Ok(nic)
    }

    fn check(&self, driver: &dyn Driver) -> io::Result<()> {
        Table::read(driver).map(drop).map_err(|error| {
            let what = format!("has no rules for flows (ntuple filters): {error}");
            let name = &self.interface;
            let hint = format!("it without steer, or another NIC (squall doctor --nic {name})");
            self.error(&error, &what, &hint)
        })
    }

    /// An error with the driver's name. `hint`: the advice unless rules are only switched off.
    fn error(&self, error: &io::Error, what: &str, hint: &str) -> io::Error {
        let (interface, driver) = (&self.interface, &self.driver);
        let hint = match self.is_off {
            true => format!("sudo ethtool -K {interface} ntuple on"),
            false => hint.to_owned(),
        };
        let text = format!("{interface}: steer: the driver {driver} {what}\n  try {hint}");
        io::Error::new(error.kind(), text)
    }

    /// Sets rules until the returned value is dropped. Also returns notes for the user.
    ///
    /// # Errors
    /// The driver refuses a rule, or has no room; no rule is left set.
    pub fn steer(&self, rules: &[SteerRule]) -> io::Result<(Steering, Vec<String>)> {
        let driver = Box::new(Ioctl::open(&self.interface)?);
        self.steer_with(driver, &bypass::folders(), rules)
    }

    fn steer_with(
        &self,
        driver: Box<dyn Driver>,
        folders: &[PathBuf],
        rules: &[SteerRule],
    ) -> io::Result<(Steering, Vec<String>)> {
        let name = &self.interface;
        let mut notes = Vec::new();
        let mut record = self.record(folders)?;
        let stale: Vec<SetRule> =
            recorded(&mut record)?.into_iter().filter(|rule| rule.is_set(&*driver)).collect();
        let mut steering = Steering { driver, record, set: stale.clone() };
        steering.clear();
        let left = steering.set.len();
        let (kept, removed): (Vec<SetRule>, Vec<SetRule>) =
            stale.into_iter().partition(|rule| steering.set.contains(rule));
        for (what, of) in [("removed rules", removed), ("could not remove rules", kept)] {
            if !of.is_empty() {
                let locations = list(of.iter().map(|rule| rule.location));
                notes.push(format!("{name}: {what} that a killed run had left: {locations}"));
            }
        }
        let mut table = Table::read(&*steering.driver)?;
        for rule in rules {
            let before = steering.set.len();
            match self.insert(&mut steering, &mut table, rule) {
                // A run must not continue with a rule that was set, but not recorded.
                Err(error) if rule.frames.finds_neighbors() && steering.set.len() == before => {
                    let error = error.to_string();
                    let why = error.lines().next().unwrap_or_default();
                    notes.push(format!("{why}; neighbors need static entries for the hosts"));
                }
                inserted => inserted?,
            }
        }
        let queue = rules.first().map_or(0, |rule| rule.queues.start);
        let count = steering.set.len() - left;
        notes.push(format!("{name}: {count} rules of the NIC give frames to queue {queue}"));
        if let Some((spread, used)) = self.rss_queues
            && spread >= used
            && used > 1
        {
            let table = match queue {
                0 => format!("start 1 equal {}", used - 1),
                queue => format!("equal {queue}"),
            };
            notes.push(format!(
                "{name}: RSS also gives other frames to queue {queue} (sudo ethtool -X {name} \
                 {table} leaves it out)"
            ));
        }
        Ok((steering, notes))
    }

    fn insert(
        &self,
        steering: &mut Steering,
        table: &mut Table,
        rule: &SteerRule,
    ) -> io::Result<()> {
        let (frames, queue) = (rule.frames, rule.queues.start);
        let Some(location) = table.take() else {
            let why = match table.size {
                Some(_) => "its table is full",
                None => "it does not say how many fit",
            };
            let what = format!("has no room for a rule for {frames}: {why}");
            let hint = format!("fewer addresses or ports, or ethtool -n {}", self.interface);
            return Err(self.error(&io::ErrorKind::StorageFull.into(), &what, &hint));
        };
        let mut request = insertion(frames, queue, location);
        if let Err(error) = steering.driver.request(&mut request) {
            let what = format!("refuses a rule for {frames} to queue {queue}: {error}");
            return Err(self.error(&error, &what, advice(&error, frames)));
        }
        steering.add(SetRule { location: request[LOCATION], queue })
    }

    /// The record of this interface, locked.
    fn record(&self, folders: &[PathBuf]) -> io::Result<File> {
        let interface = &self.interface;
        let name = record_name(interface, Permissions::of_this_process().uid)
            .ok_or_else(|| io::Error::other("no network namespace in /proc"))?;
        let open = |folder: &PathBuf| shared::own_file(&folder.join(&name)).ok();
        let Some(file) = folders.iter().find_map(open) else {
            let text = format!(
                "{interface}: steer: cannot make the file {name}, which lists rules in case this \
                 run is killed\n  try TMPDIR=FOLDER"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        };
        // A check holds its lock only briefly.
        if !bypass::held_after(|| file.try_lock()) {
            let text = format!("{interface}: steer: another run of Squall has set rules there");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        Ok(file)
    }
}

fn list(locations: impl Iterator<Item = u32>) -> String {
    locations.map(|location| location.to_string()).collect::<Vec<_>>().join(", ")
}

/// The advice after a driver has refused a rule.
fn advice(error: &io::Error, frames: Steered) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "sudo: rules need CAP_NET_ADMIN",
        Some(libc::ENOSPC) => "fewer addresses or ports",
        _ => match frames {
            Steered::Ip { to, transport: None } if to.mask() != all_ones(to.address) => {
                "pools of single addresses, as some drivers compare whole addresses only, or \
                 steer=udp/PORT"
            }
            Steered::Ip { transport: None, .. } => "steer=udp/PORT or steer=tcp/PORT",
            _ => "it without steer",
        },
    }
}

fn all_ones(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => [0xff; 4].into(),
        IpAddr::V6(_) => [0xff; 16].into(),
    }
}

/// Rules in a NIC, which are removed when this is dropped.
#[derive(Debug)]
pub struct Steering {
    driver: Box<dyn Driver>,
    /// The record of `set`, locked.
    record: File,
    set: Vec<SetRule>,
}

impl Steering {
    fn add(&mut self, rule: SetRule) -> io::Result<()> {
        self.set.push(rule);
        // At the end: the record was read to there, or cleared.
        // In one call, so that a killed run leaves whole lines.
        self.record.write_all(format!("{} {}\n", rule.location, rule.queue).as_bytes())
    }

    /// Removes the rules.
    fn clear(&mut self) {
        let driver = &*self.driver;
        // A rule that is not there any more needs no deletion: the owner has deleted it, or the
        // interface is gone.
        self.set.retain(|rule| rule.delete(driver).is_err() && rule.is_set(driver));
        // Rules that could not be deleted stay in the record, for `squall doctor` and the next run.
        if self.set.is_empty() && self.record.set_len(0).is_ok() {
            let _ = self.record.seek(SeekFrom::Start(0));
        }
    }
}

impl Drop for Steering {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        fs,
        sync::{Arc, Mutex},
    };

    use squall_port::{Hosts, Steer};

    use super::*;

    /// Requests that a program in C fills by the names of linux/ethtool.h: octets other than 0 with
    /// their offsets.
    #[test]
    fn requests_are_laid_out_as_in_the_header_of_the_kernel() {
        let hosts = |first: &str, last: &str| {
            let address = |text: &str| text.parse::<IpAddr>().unwrap();
            Hosts { addresses: vec![address(first)..=address(last)], ..Hosts::default() }
        };
        let frames = |steer: &str, hosts: &Hosts, number: usize| {
            steer.parse::<Steer>().unwrap().rules(hosts, &(3..4)).unwrap()[number].frames
        };
        let v4 = hosts("16.0.0.0", "16.0.1.255");
        let v6 = hosts("fd00::", "fd00::1");
        let none = Hosts::default();
        let ones = |from: usize, to: usize| (from..to).map(|at| (at, 0xff)).collect::<Vec<_>>();
        for (frames, location, octets) in [
            (
                frames("udp/5002", &none, 0),
                1023,
                [vec![(16, 2), (30, 0x13), (31, 0x8a)], ones(102, 104)].concat(),
            ),
            (frames("tcp/80", &none, 1), 1023, [vec![(16, 5), (55, 80)], ones(126, 128)].concat()),
            (
                frames("flows", &v4, 0),
                1023,
                [vec![(16, 13), (24, 16), (33, 1)], ones(96, 98), vec![(98, 0xfe)]].concat(),
            ),
            (
                frames("flows", &v6, 1),
                1023,
                [vec![(16, 14), (36, 0xff), (37, 2), (47, 1), (48, 0xff)], ones(108, 121)].concat(),
            ),
            (
                frames("flows", &v4, 1),
                1023,
                [vec![(16, 18), (32, 8), (33, 6)], ones(104, 106)].concat(),
            ),
        ] {
            let mut expected = [0; 192];
            let all = [(0, 0x32), (168, 3), (176, 0xff), (177, 3)];
            for (at, octet) in octets.into_iter().chain(all) {
                expected[at] = octet;
            }
            let request = insertion(frames, 3, location).map(u32::to_ne_bytes).concat();
            assert_eq!(request, expected, "{frames}");
        }
    }

    /// A NIC with a table for rules.
    #[derive(Clone, Debug, Default)]
    struct FakeNic(Arc<Mutex<FakeTable>>);

    #[derive(Debug, Default)]
    struct FakeTable {
        rules: BTreeMap<u32, Vec<u32>>,
        size: u32,
        chooses: bool,
        /// The type of rules that are refused, and the error.
        refuses: Option<(u32, i32)>,
    }

    impl FakeNic {
        fn with(table: FakeTable) -> Self {
            Self(Arc::new(Mutex::new(table)))
        }

        fn locations(&self) -> Vec<u32> {
            self.0.lock().unwrap().rules.keys().copied().collect()
        }
    }

    impl Driver for FakeNic {
        fn request(&self, request: &mut [u32]) -> io::Result<()> {
            let mut nic = self.0.lock().unwrap();
            let error = |number| Err(io::Error::from_raw_os_error(number));
            let special = if nic.chooses { RX_CLS_LOC_SPECIAL as u32 } else { 0 };
            match request[0] {
                ETHTOOL_GRXCLSRLCNT => {
                    (request[DATA], request[COUNT]) = (special, nic.rules.len() as u32);
                }
                ETHTOOL_GRXCLSRLALL => {
                    request[DATA] = nic.size;
                    for (word, location) in request[LOCATIONS..].iter_mut().zip(nic.rules.keys()) {
                        *word = *location;
                    }
                }
                ETHTOOL_GRXCLSRULE => match nic.rules.get(&request[LOCATION]) {
                    Some(rule) => request.copy_from_slice(rule),
                    None => return error(libc::ENOENT),
                },
                ETHTOOL_SRXCLSRLDEL => {
                    if nic.rules.remove(&request[LOCATION]).is_none() {
                        return error(libc::ENOENT);
                    }
                }
                ETHTOOL_SRXCLSRLINS => {
                    if let Some((_, number)) =
                        nic.refuses.filter(|(refused, _)| *refused == request[FLOW_TYPE])
                    {
                        return error(number);
                    }
                    if request[LOCATION] == RX_CLS_LOC_ANY {
                        request[LOCATION] = nic.rules.keys().max().map_or(0, |last| last + 1);
                    }
                    let old = nic.rules.insert(request[LOCATION], request.to_vec());
                    assert_eq!(old, None, "no rule is overwritten");
                }
                other => panic!("request {other:#x}"),
            }
            Ok(())
        }
    }

    fn nic(interface: &str) -> Nic {
        let (interface, driver) = (interface.to_owned(), "fake".to_owned());
        Nic { interface, driver, is_off: false, rss_queues: Some((4, 4)) }
    }

    fn of_flows() -> Vec<SteerRule> {
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let hosts = Hosts { addresses: vec![address(0)..=address(2)], ..Hosts::default() };
        Steer::Flows.rules(&hosts, &(3..4)).unwrap()
    }

    fn folder() -> PathBuf {
        shared::own_folder(&std::env::temp_dir(), "squall-steer-test").unwrap()
    }

    #[test]
    fn rules_are_set_at_free_locations_and_removed_at_the_end() {
        let folders = [folder()];
        let owners = BTreeMap::from([(2, command(0).to_vec()), (7, command(0).to_vec())]);
        for (chooses, wanted) in [(false, vec![2, 4, 5, 6, 7]), (true, vec![2, 7, 8, 9, 10])] {
            let table =
                FakeTable { rules: owners.clone(), size: 8, chooses, ..FakeTable::default() };
            let fake = FakeNic::with(table);
            let (steering, notes) =
                nic("eth7").steer_with(Box::new(fake.clone()), &folders, &of_flows()).unwrap();
            assert_eq!(fake.locations(), wanted);
            let notes = notes.join("\n");
            assert!(notes.contains("eth7: 3 rules of the NIC give frames to queue 3"), "{notes}");
            assert!(notes.contains("sudo ethtool -X eth7 equal 3 leaves it out"), "{notes}");
            let other = nic("eth7").steer_with(Box::new(fake.clone()), &folders, &[]).unwrap_err();
            assert!(other.to_string().contains("another run of Squall"), "{other}");
            let rules = FlowRules::read(&fake, &folders, "eth7").unwrap();
            assert_eq!(rules, FlowRules { set: 5, room: Some(8), stale: vec![] });
            drop(steering);
            assert_eq!(fake.locations(), [2, 7]);
        }
        fs::remove_dir_all(&folders[0]).unwrap();
    }

    #[test]
    fn a_refusal_names_the_driver_and_leaves_no_rule() {
        let folders = [folder()];
        let steer = |refuses, is_off, size| {
            let fake = FakeNic::with(FakeTable { size, refuses, ..FakeTable::default() });
            let nic = Nic { is_off, ..nic("eth7") };
            let done = nic.steer_with(Box::new(fake.clone()), &folders, &of_flows());
            (done.map(|(steering, notes)| (steering, notes.join("\n"))), fake.locations())
        };
        let refused = |refuses, is_off, size| {
            let (done, locations) = steer(refuses, is_off, size);
            assert!(locations.is_empty(), "{locations:?}");
            done.expect_err("refused").to_string()
        };
        let text = refused(Some((IP_USER_FLOW, libc::EOPNOTSUPP)), false, 8);
        let wanted = "eth7: steer: the driver fake refuses a rule for packets to 10.0.0.0/31 to \
                      queue 3";
        assert!(text.contains(wanted) && text.contains("try pools of single"), "{text}");
        let text = refused(Some((IP_USER_FLOW, libc::EPERM)), false, 8);
        assert!(text.contains("try sudo: rules need CAP_NET_ADMIN"), "{text}");
        let text = refused(Some((IP_USER_FLOW, libc::EINVAL)), true, 8);
        assert!(text.contains("try sudo ethtool -K eth7 ntuple on"), "{text}");
        let text = refused(None, false, 1);
        assert!(text.contains("packets to 10.0.0.2/32: its table is full"), "{text}");
        // Without ARP, the port works for neighbors that know its hosts.
        let (done, locations) = steer(Some((ETHER_FLOW, libc::EINVAL)), false, 8);
        let (_steering, notes) = done.unwrap();
        assert_eq!(locations, [6, 7]);
        assert!(notes.contains("refuses a rule for ARP frames"), "{notes}");
        fs::remove_dir_all(&folders[0]).unwrap();
    }

    #[test]
    fn rules_of_a_killed_run_are_found_and_the_next_run_removes_them() {
        let folders = [folder()];
        let fake = FakeNic::with(FakeTable { size: 8, ..FakeTable::default() });
        for location in [0, 5, 6] {
            fake.request(&mut insertion(Steered::Arp, 3, location)).unwrap();
        }
        // The owner of the machine has replaced rule 6 by another, and deleted rule 4.
        let user = Permissions::of_this_process().uid;
        let name = record_name("eth7", user).unwrap();
        let mut file = shared::own_file(&folders[0].join(name)).unwrap();
        file.write_all(b"4 3\n5 3\n6 2\nx\n7").unwrap();
        drop(file);
        let stale = || FlowRules::read(&fake, &folders, "eth7").unwrap().stale;
        assert_eq!(stale(), [5]);
        let (steering, notes) =
            nic("eth7").steer_with(Box::new(fake.clone()), &folders, &of_flows()).unwrap();
        let notes = notes.join("\n");
        assert!(notes.contains("eth7: removed rules that a killed run had left: 5"), "{notes}");
        assert_eq!(fake.locations(), [0, 4, 5, 6, 7]);
        drop(steering);
        assert_eq!((fake.locations(), stale()), (vec![0, 6], vec![]));
        fs::remove_dir_all(&folders[0]).unwrap();
    }
}
